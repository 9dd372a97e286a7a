"""Paths of a machine, what only looks like one, and what a record says in their place."""

from __future__ import annotations

import json
from functools import partial

import pytest

from kbtool.model.machine_path import machine_paths, without_machine_paths

PATHS = [
    "/home/ada/kb/kernels/add.cpp",
    "/home/ada",
    "/home2/ada/x",
    "/root/kb",
    "/Users/Ada/kb",
    "/tmp/cc1aB2.o",
    "/var/tmp/x",
    "/var/folders/ab/T/x",
    "/work1/kb/x.h",
    "/workspace/kb",
    "/mnt/nvme0/ada",
    "/opt/conda/lib/python3.12/site-packages/torch",
    "/scratch/ada/x",
    "/data/ada/x.bin",
    "/content/drive/MyDrive",
    "/builds/ada/kb",
    r"C:\Users\Ada\kb",
    r"D:\kb\x.cu",
    r"\\server\share\kb",
    "/home/müller/kb",
]
AS_JSON = partial(json.dumps, ensure_ascii=False)
AROUND = [
    "{}",
    "in {}:12: error: x",
    "'{}'",
    '"{}"',
    "({})",
    "[{}]",
    "PATH=/usr/bin:{}",
    "-I{} -isystem{}",
    "-Wl,-rpath,{}",
    "--prefix={}",
    "file://{}",
    "git@host:{}",
    "make > {}",
    "first\n{}\tlast",
    "\x1b[01m{}\x1b[0m",
    "<code>see {}</code>",
]
NO_PATHS = [
    "/usr/include/c++/12/vector",
    "/usr/bin/ld: cannot find -lfoo",
    "/usr/local/cuda-12.8/include/cuda.h",
    "/etc/os-release, /dev/null, /proc/cpuinfo, /sys/class",
    "https://docs.nvidia.com/opt/tmp/x",
    "https://example.org/home/index.html",
    "https://example.org:8000/data/feed.json",
    "//example.org/home/index.html",
    "5 GB/s, µs/step, and/or, 3/4, 1/opt/2",
    "sites/home/index.md, ../tmp/x, ./opt/x, ~/opt/x",
    "$HOME/opt/x, ${ROOT}/opt/x, $CUDA_HOME/include, %/tmp/x",
    "<root>/home/x",
    "**/tmp/x, /tmp/*.o",
    "/home, /tmp, /root, /opt/",
    "/kernels/split_k_attention/, /patterns/P01/, /steps/0/result",
    "s/home/away/",
    r"\d+/\w+, \bfoo\b, \\d+\\w",
    "12:30:45, a:b, C: x, x = D:\n",
    "c:/x, key:/value",
    "std::vector, D::x",
    "/homework/x, /optional/x, /tmpfs/x",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("written", [str, AS_JSON])
def test_machine_paths_are_found_and_removed_anywhere_in_a_text(path, around, written):
    text = written(around.replace("{}", path))
    found = [one for _, one in machine_paths(text)]
    in_it = path if written is str else AS_JSON(path)[1:-1]
    assert found == [in_it] * around.count("{}")
    assert [text[at : at + len(one)] for at, one in machine_paths(text)] == found
    left = without_machine_paths(text)
    assert "ada" not in left.lower()
    if written is AS_JSON:
        json.loads(left)


def test_a_windows_path_with_slashes_loses_its_user_name():
    assert without_machine_paths("C:/Users/Ada/kb/x.cu: error") == "C:…/x.cu: error"


@pytest.mark.parametrize("text", NO_PATHS)
@pytest.mark.parametrize("written", [str, AS_JSON])
def test_text_that_is_no_machine_path_is_left_alone(text, written):
    assert list(machine_paths(written(text))) == []
    assert without_machine_paths(written(text)) == written(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/kb/kernels/add/add.cpp:3: error", "kernels/add/add.cpp:3: error"),
        ("cd /home/ada/kb && ls", "cd . && ls"),
        ("/home/ada/kb2/x.h", "$HOME/kb2/x.h"),
        ("-I/home/ada/kb/a -L/home/ada/env/lib", "-Ia -L$PYTHON/lib"),
        ("/home/ada/env/lib/torch/a.h:1", "$PYTHON/lib/torch/a.h:1"),
        ("/usr/home/ada/kb/x", "…"),
        ("/mnt/b/x.so does not load", "…/x.so does not load"),
        ("/mnt/b/ada is full", "… is full"),
        ("https://h/home/ada/kb/x.h", "https://h/home/ada/kb/x.h"),
        ('"a\\n/home/ada/kb/x.h"', '"a\\nx.h"'),
    ],
)
def test_known_folders_are_replaced_by_their_names(text, shown):
    folders = {"/home/ada": "$HOME", "/home/ada/kb": "", "/home/ada/env": "$PYTHON"}
    assert without_machine_paths(text, folders) == shown
