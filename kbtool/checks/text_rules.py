"""Rules over the text of a file: no secrets, no addresses and no paths of machines.

The same rules apply to YAML, JSON and prose. Findings never print the whole secret.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kbtool.checks.excuses import MACHINE_PATH
from kbtool.model.control import CONTROL, holds
from kbtool.model.finding import Finding
from kbtool.model.machine_path import machine_paths
from kbtool.store.scan import EXCUSES


class _Secret(NamedTuple):
    name: str
    triggers: tuple[str, ...]
    """Small letters; without one of them in the text the expression is not tried."""
    expression: re.Pattern[str]
    is_real: Callable[[str], bool] = lambda _: True


def _random(text: str) -> bool:
    """Whether ``text`` looks random. A placeholder or a word does not."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


def _mixed(text: str) -> bool:
    return _random(text) and any(c.isupper() for c in text)


_SECRETS = (
    _Secret(
        "a private key",
        ("private key",),
        re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    ),
    _Secret("an AWS key", ("akia", "asia"), re.compile(r"\b((?:AKIA|ASIA)[0-9A-Z]{16})\b")),
    _Secret(
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"),
    ),
    _Secret("a GitLab token", ("glpat-",), re.compile(r"\b(glpat-[\w-]{20,})")),
    _Secret(
        "an API key",
        ("sk-", "sk_", "rk_"),
        # Looking behind after the first letters is 5 times as fast as before them.
        re.compile(
            r"((?:sk(?<![\w-]sk)(?:-|_live_|_test_)|rk(?<![\w-]rk)_live_)[A-Za-z0-9_-]{20,})"
        ),
        _mixed,
    ),
    _Secret("a Google key", ("aiza",), re.compile(r"\b(AIza[0-9A-Za-z_-]{30,})")),
    _Secret("a Hugging Face token", ("hf_",), re.compile(r"\b(hf_[A-Za-z0-9]{30,})"), _mixed),
    _Secret("an npm token", ("npm_",), re.compile(r"\b(npm_[A-Za-z0-9]{36,})")),
    _Secret("a PyPI token", ("pypi-",), re.compile(r"\b(pypi-[A-Za-z0-9_-]{50,})")),
    _Secret("a Slack token", ("xox",), re.compile(r"\b(xox[abeoprs]-[A-Za-z0-9-]{10,})"), _random),
    _Secret(
        "a Slack webhook",
        ("hooks.slack.com",),
        re.compile(r"hooks\.slack\.com/services/([\w/]{20,})"),
    ),
    _Secret(
        "a signed token (JWT)",
        ("eyj",),
        re.compile(r"\b(eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*)"),
    ),
    _Secret(
        "a bearer token",
        ("bearer",),
        re.compile(r"\b[Bb](?:earer|EARER)\s+([A-Za-z0-9._~+/=-]{16,})"),
        _random,
    ),
    _Secret(
        "a password in an address",
        ("://",),
        re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\"]*:([^\s/@'\"<>${}*]{1,200})@"),
    ),
    _Secret(
        "a password",
        ("passw", "secret", "api_key", "api-key", "apikey", "token"),
        re.compile(
            r"(?:\b|_)(?:password|passwd|passwort|secret(?:[_-]?access)?(?:[_-]?key)?|api[_-]?key"
            r"|(?:access|auth|api|refresh)[_-]?token)[\"']?\s*[:=]\s*[\"']?"
            r"([A-Za-z0-9+/_.~!@#%^&=-]{8,200})",
            re.IGNORECASE,
        ),
        _random,
    ),
)

_IN_NO_TRIGGER = b"0123456789 \t\r\n,[]{}\"'"
"""Two thirds of a run record: a trigger is looked for in what is left without them."""
_TRIGGERS = tuple(
    (trigger.encode().translate(None, _IN_NO_TRIGGER), secret)
    for secret in _SECRETS
    for trigger in secret.triggers
)

_DIGIT = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(rf"(?<![\w.])({_DIGIT}(?:\.{_DIGIT}){{3}})(?![\w]|\.\d)")
# Searching from the first dot or colon of an address on is a hundred times as fast.
_MAYBE_IPV4 = re.compile(r"\.\d{1,3}\.\d{1,3}\.\d")
_VERSION = re.compile(
    # Libraries of four numbers exist (cuDNN 9.1.0.70): their name, or a sign of a version, must
    # stand right before the number.
    r"(?:\bv|[=<>~!]=|\bversions?|\breleases?|\bdriver|\bcuda|\bnvcc|\bcudnn\w*|\bnccl\w*|\btorch"
    r"|\btensorrt|\bcublas\w*|\bcutlass|\bnsight|\bcompute|\bsystems|\bgcc|\bclang|\bpython|\bnumpy"
    r"|\bninja|\bcompiler)"
    r"[\s\"':=(]*\Z",
    re.IGNORECASE,
)
_MAYBE_IPV6 = re.compile(r":[0-9A-Fa-f]{0,4}:")
_IPV6 = re.compile(r"(?<![\w:.])((?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:])")
_HOST_OF_IP = re.compile(rf"\b(ip-{_DIGIT}(?:-{_DIGIT}){{3}})\b")


def secrets(path: str, text: str) -> Iterator[Finding]:
    """No keys, tokens or passwords: records are published, and git forgets nothing."""
    lower = text.lower().encode(errors="replace").translate(None, _IN_NO_TRIGGER)
    likely = dict.fromkeys(secret for trigger, secret in _TRIGGERS if trigger in lower)
    for secret in likely:
        for match in secret.expression.finditer(text):
            value = match[1] if match.re.groups else ""
            if secret.is_real(value):
                yield Finding(
                    path, _line(text, match.start()), "secret",
                    f"holds {secret.name} ({value[:4]}…): remove it, make it invalid where it was"
                    " issued, and if it was committed, take it out of the history",
                )  # fmt: skip


def addresses(path: str, text: str) -> Iterator[Finding]:
    """No addresses of machines, IPv4 or IPv6, public or private."""
    for start, address in _addresses(text):
        yield Finding(
            path, _line(text, start), "address",
            f"holds the address of a machine ({address[:4]}…): write what the machine is, not"
            " where; a version of four numbers needs its name before it (cuDNN 9.1.0.70)",
        )  # fmt: skip


def paths(path: str, text: str) -> Iterator[Finding]:
    """No absolute paths that tell of a machine or a person (``model.machine_path``)."""
    for start, found in machine_paths(text):
        hint = (
            "record the run again; kbtool writes none now. Name a run that cannot be made again in"
            f" sessions/{EXCUSES}"
            if path.endswith(".json")
            else "write it relative to the knowledge base, or with a variable ($HOME, $CUDA_HOME)"
        )
        yield Finding(
            path, _line(text, start), MACHINE_PATH, f"holds a path of a machine ({found}): {hint}"
        )


def controls(path: str, text: str) -> Iterator[Finding]:
    """No character that steers a terminal or turns the direction of text around."""
    # Of a YAML record the parser says so, escaped ones included.
    found = None if path.endswith(".yaml") else CONTROL.search(text)
    if found:
        yield Finding(path, _line(text, found.start()), "encoding", holds(found[0]))


def _addresses(text: str) -> Iterator[tuple[int, str]]:
    for near in _MAYBE_IPV4.finditer(text):
        for start in range(max(0, near.start() - 3), near.start()):
            match = _IPV4.match(text, start)
            if match is None:
                continue
            octets = match[1].split(".")
            is_zero = octets[0] == "0" and match[1] != "0.0.0.0"
            before = text[max(0, start - 24) : start]
            if not is_zero and not _VERSION.search(before):
                yield start, match[1]
    if "ip-" in text:
        for match in _HOST_OF_IP.finditer(text):
            yield match.start(), match[1]
    end = 0
    for near in _MAYBE_IPV6.finditer(text):
        for start in range(max(end, near.start() - 4), near.start() + 1):
            match = _IPV6.match(text, start)
            if match is not None:
                end = match.end()
                if _is_ipv6(text, match):
                    yield start, match[1]


def _is_ipv6(text: str, match: re.Match[str]) -> bool:
    """Whether this is an address; ``x[::2]``, ``12:30:45`` and ``c10::`` are not."""
    word = match[1]
    try:
        ipaddress.IPv6Address(word)
    except ValueError:
        return False
    if "::" not in word:
        return True
    groups = [group for group in word.split(":") if group]
    if word == "::1":
        before, after = text[: match.start()][-1:], text[match.end() :][:2]
        return before != "[" or after == "]:"
    return len(groups) >= 2 and any(len(group) >= 3 for group in groups) and groups[0] != "c10"


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


TEXT_RULES: tuple[Callable[[str, str], Iterator[Finding]], ...] = (
    secrets,
    addresses,
    paths,
    controls,
)
WRITTEN_RULES = tuple(rule for rule in TEXT_RULES if rule is not paths)
"""What holds for the record of a run before it is written: paths are taken out as it is."""


def private(
    data: Any, rules: Iterable[Callable[[str, str], Iterator[Finding]]] = TEXT_RULES
) -> tuple[str, str] | None:
    """What these rules refuse in a JSON record that holds ``data``: the first line, and why."""
    text = json.dumps(data, ensure_ascii=False, indent=1)
    for rule in rules:
        for finding in rule("", text):
            return text.split("\n")[finding.line - 1].strip(), finding.message
    return None
