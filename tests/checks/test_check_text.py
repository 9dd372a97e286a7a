"""Secrets, IP addresses and machine paths in every kind of file, and text that resembles them."""

from __future__ import annotations

import pytest
from knowledge import LOOK, RUN, sealed

from kbtool.checks.text_rules import addresses, paths, secrets

# Put together here, so that nobody's scanner takes this file for a leak.
TOKEN = "gh" + "p_" + "a1B2c3D4" * 5
SECRETS = [
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "-----BEGIN " + "PRIVATE KEY-----",
    "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----",
    "AK" + "IAIOSFODNN7EXAMPLE",
    TOKEN,
    "github" + "_pat_" + "11ABCDEFG0" * 4,
    "sk" + "-" + "proj-Ab1Cd2Ef3Gh4Ij5Kl6Mn7",
    "xox" + "b-123456789012-abcdefABCDEF",
    "hf" + "_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3",
    "Authorization: Bearer " + "abcdef1234567890abcdef",
    "postgres://user:" + "hunter22@db.example.org/x",
    "https://:" + "tok3n123@example.org",
    "password: " + "hunter2hunter2",
    "AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG/bPx",
    "api_key = '" + "0123456789abcdef'",
    "eyJhbGciOiJIUzI1" + ".eyJzdWIiOiIxMjM0NTY3" + ".abc",
]
NO_SECRETS = [
    "the private key is on the other machine",
    "task-split-k-attention-baseline-kernel",
    "sk-attention-of-the-two-pass-kernel",
    "mask-1234567890123456789012345",
    "set password: before the first run",
    "HF_TOKEN is read from the environment",
    "https://example.org/path?x=1",
    "git@github.com:owner/name.git",
    "ssh://git@github.com/owner/name.git",
    "https://user:${TOKEN}@example.org",
    "bearer of bad news about the kernel",
    "commit 0123456789abcdef0123456789abcdef01234567",
]
ADDRESSES = [
    "10.0.0.1",
    "ssh root@203.0.113.7",
    "http://192.168.1.20:8888/lab",
    "127.0.0.1",
    "0.0.0.0:8000",
    "(34.91.7.255)",
    "host=172.16.0.9,",
    "ends a sentence 10.1.2.3.",
    "2001:db8::8a2e:370:7334",
    "fe80::1ff:fe23:4567:890a%eth0",
    "[2001:db8::1]:22",
    "::1",
    "[::1]:8080",
    "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
    "::ffff:10.0.0.1",
    "ip-10-0-0-12.ec2.internal",
]
NO_ADDRESSES = [
    "torch 2.2.1",
    "12.8",
    "driver 550.54.15",
    "driver: 525.105.17.1",
    "cuDNN 9.1.0.70",
    "nvidia-cudnn-cu12==9.1.0.70",
    "version 12.8.0.1",
    "v1.2.3.4",
    "300.400.500.600",
    "1.2.3.4.5",
    "section 1.2.3",
    "0.1.2.3",
    "at 12:30:45",
    "2025-10-12T19:42:00Z",
    "x[::2], x[1::2], x[::1], x[a:b:c]",
    "at::native, c10::Half, the c10:: namespace, torch::Tensor",
    "std::add, ::add()",
    "aa:bb:cc:dd:ee:ff",
    "1:2:3",
    "64×64, 128×128×64",
]


@pytest.mark.parametrize("text", SECRETS)
def test_secrets_are_found_and_not_repeated(text):
    found = list(secrets("x", f"first line\n{text}\n"))
    assert [finding.line for finding in found] == [2]
    assert text not in found[0].message


@pytest.mark.parametrize("text", NO_SECRETS + ADDRESSES[:2])
def test_text_that_only_resembles_a_secret_passes(text):
    assert list(secrets("x", text)) == []


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses_are_found(text):
    assert {finding.line for finding in addresses("x", f"\n\n{text}\n")} == {3}


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_text_that_only_resembles_an_address_passes(text):
    assert list(addresses("x", text)) == []


def test_a_finding_for_a_machine_path_says_what_to_do():
    prose, run = (next(paths(name, "a\nin /home/ada/kb/x.h\n")) for name in ("a.md", "a.json"))
    assert (prose.line, prose.rule) == (2, "machine-path")
    assert "(/home/ada/kb/x.h)" in prose.message and "relative to the knowledge" in prose.message
    assert "sessions/excuses.yaml" in run.message


def test_secrets_addresses_and_paths_are_searched_for_in_every_record(base):
    base.session(more=f"# {TOKEN}\n")
    base.pattern(more=LOOK + "# ssh 10.0.0.1\n")
    base.kernel().open("a").write(f"# {TOKEN}\n")
    base.write("sessions/2025-01-01-a/notes.md", "# Notes\n\nssh 10.0.0.1\nin /home/ada/x\n")
    run = {**RUN, "parameters": {"host": "10.0.0.1"}}
    base.write(f"sessions/2025-01-01-a/runs/{RUN['id']}.json", sealed(run))
    assert [(f.path.rsplit("/", 1)[-1], f.rule) for f in base.findings()] == [
        ("kernel.yaml", "secret"),
        ("P01.yaml", "address"),
        ("notes.md", "address"),
        ("notes.md", "machine-path"),
        (f"{RUN['id']}.json", "address"),
        ("session.yaml", "secret"),
    ]


def test_secrets_and_addresses_are_found_in_files_that_do_not_parse(base):
    base.write("sessions/2025-01-01-a/session.yaml", f"id: [\n{TOKEN}\n")
    base.write("sessions/2025-01-01-a/notes.md", b"\xff\n10.0.0.1\n")
    assert [(f.rule, f.line) for f in base.findings()] == [
        ("encoding", 1),
        ("address", 2),
        ("secret", 2),
        ("yaml", 3),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "docs/guide/deep/page.md",
        "kernels/add/README.md",
        "kernels/add/harness.py",
        "kernels/add/interface.py",
        "kernels/add/add.cpp",
        "kernels/add/cuda/_tile.cuh",
    ],
)
def test_secrets_and_addresses_are_found_in_published_files_that_are_no_records(base, path):
    base.kernel()
    base.write(path, f"\n// {TOKEN} ssh 10.0.0.1\n")
    for _ in range(2):
        found = base.findings(cached=True)
        assert [(f.path, f.rule, f.line) for f in found] == [
            (path, "address", 2),
            (path, "secret", 2),
        ]
    base.write(path, "ok\n")
    assert base.findings(cached=True) == []


def test_unpublished_files_are_not_read(base):
    base.kernel()
    for path in ("kernels/add/.x/a.py", "kernels/other/a.py", "docs/a.png", "notes.txt"):
        base.write(path, TOKEN)
    (base.root / "docs/loop").symlink_to(base.root / "docs")
    assert base.findings() == []


OURS, THEIRS = "<" * 7 + " HEAD\n", ">" * 7 + " other\n"


@pytest.mark.parametrize("name", ["session.yaml", "notes.md"])
def test_conflict_markers_of_git_are_named(base, name):
    folder = base.session().parent
    path = folder / name
    before = path.read_text() if path.exists() else "# Notes\n"
    path.write_text(f"{before}{OURS}outcome: one\n=======\noutcome: other\n{THEIRS}")
    line = before.count("\n") + 1
    (finding,) = base.findings()
    assert (finding.path, finding.line) == (f"sessions/{folder.name}/{name}", line)
    assert finding.rule == "conflict"
    assert f"holds git's conflict markers, line {line}: " in finding.message
    # A merge mended by half.
    path.write_text(f"{before}outcome: other\n{THEIRS}")
    assert [finding.line for finding in base.findings()] == [line + 1]


def test_text_that_only_resembles_a_conflict_marker_passes(base):
    folder = base.session(more=f"outcome: |\n  {OURS}  {THEIRS}").parent
    (folder / "notes.md").write_text(f"# Notes\n\n  {OURS}{'<' * 7}\n{'>' * 8} quoted\n=======\n")
    assert base.findings() == []
