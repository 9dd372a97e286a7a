"""Rules between records on kernels: what recipes and manifests name is there."""

from __future__ import annotations

import pytest
from knowledge import KERNEL, RECIPE, line_of

from kbtool.model.kernel import CaseField, Kernel
from kbtool.store.document import parse


def test_a_recipe_names_a_kernel_its_targets_and_case_sets(base):
    path = base.pattern(more=RECIPE)
    assert base.rules() == [("recipe", line_of(path, "kernel:"))]
    base.kernel()
    assert base.findings() == []
    path.write_text(
        path.read_text()
        .replace("case_sets: small", "case_sets: 'small, huge'")
        .replace("kind: build,", "kind: build, target: cuda,")
    )
    assert base.rules() == [
        ("recipe", line_of(path, "cuda")),
        ("recipe", line_of(path, "huge")),
    ]


@pytest.mark.parametrize(
    "step",
    [
        "kind: tune, variants: all, case_sets: huge",
        "kind: mutants, case_sets: small, profile: 'small, huge'",
        "kind: profile, case_set: huge",
    ],
)
def test_whatever_step_names_a_case_set_is_held_to_the_manifest(base, step):
    base.kernel()
    more = f"      - {{id: more, title: M, expected: 1 s, timeout: 1 s, {step}}}\n"
    path = base.pattern(more=RECIPE + more)
    assert base.rules() == [("recipe", line_of(path, "huge"))]


def test_the_choices_of_a_parameter_are_held_to_the_manifest_too(base):
    base.kernel()
    choice = (
        "    parameters:\n      cases: {type: choice, default: small, choices: [small, none],"
        " help: H}\n"
    )
    more = RECIPE.replace("    steps:", choice + "    steps:").replace(
        "case_sets: small", "case_sets: '${cases}'"
    )
    path = base.pattern(more=more)
    assert base.rules() == [("recipe", line_of(path, "case_sets"))]


@pytest.mark.parametrize(
    ("instead_of", "put", "said"),
    [
        (
            "sources: [add.cpp]",
            "python: [add.py]",
            "targets.cpu.sources: is missing (Its C++, CUDA or Python files, inside the kernel's",
        ),
        (
            "[add.cpp]",
            "[]",
            "targets.cpu.sources: is empty; it needs at least 1 (Its C++, CUDA or Python files",
        ),
        ("harness: harness.py\n", "", "harness: is missing (The Python file that makes inputs,"),
        (
            "help: how many",
            "default: 1",
            "case_fields.n.help: is missing (What it is, with its unit)",
        ),
        (
            "[add.cpp]",
            "[add.py], packages: [triton>=3]",
            "targets.cpu.packages[0]: 'triton>=3' is not the name of a package; write that alone",
        ),
        (
            "namespace: add",
            "namespace: add-1",
            "namespace: 'add-1' is no name for it; use small letters, digits and _, a letter first",
        ),
    ],
)
def test_a_mistake_in_a_manifest_says_what_to_write(base, instead_of, put, said):
    assert KERNEL.count(instead_of) == 1
    base.kernel(KERNEL.replace(instead_of, put))
    assert any(finding.message.startswith(said) for finding in base.findings())


def test_a_missing_key_that_kinds_of_step_explain_in_different_words_is_only_missing(base):
    base.kernel()
    base.pattern(more=RECIPE.replace(", case_sets: small", "").replace("title: C, ", ""))
    assert {finding.message for finding in base.findings()} == {
        "recipes[0].steps[1].validate.case_sets: is missing",
        "recipes[0].steps[1].validate.title: is missing (What it does)",
    }


@pytest.mark.parametrize(
    "path", ["..", "../..", "/etc", "out/../../x", "link/inside", "~/x", "a\\b"]
)
def test_a_command_step_that_leaves_the_tree_is_a_finding(base, path, tmp_path):
    (base.root / "link").symlink_to(tmp_path)
    step = "      - {{id: x, kind: command, title: X, expected: 1 s, timeout: 9 s, run: [a], {}}}\n"
    head = "recipes:\n  - name: x\n    title: X\n    steps:\n"
    for key, value in (("cwd", f"'{path}'"), ("produces", f"['{path}']")):
        record = base.pattern(more=head + step.format(f"{key}: {value}"))
        assert base.rules() == [("path", line_of(record, "kind: command"))], key
    base.pattern(more=head + step.format("cwd: sub/dir, produces: [out/x.json]"))
    assert base.findings() == []


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("none.cpp", "manifest"),
        ("../../patterns/P01.yaml", "path"),
        ("/etc/passwd", "path"),
        ("link.cpp", "path"),
        ("folder", "manifest"),
    ],
)
def test_a_manifest_names_files_in_its_own_folder(base, source, rule):
    base.pattern()
    path = base.kernel(KERNEL.replace("add.cpp", source))
    (path.parent / "folder").mkdir()
    (path.parent / "link.cpp").symlink_to(base.root / "patterns/P01.yaml")
    assert base.rules() == [(rule, line_of(path, "cpu:"))]


def test_a_source_of_one_architecture_is_held_to_the_same_rules(base):
    cuda = "  cuda: {sources: [add.cpp], architectures: [sm_80, sm_90a],\n    %s}\ncase_fields:"
    listed = cuda % "architecture_sources: {sm_90a: [%s]}"
    path = base.kernel(KERNEL.replace("case_fields:", listed % "none.cu"))
    assert base.rules() == [("manifest", line_of(path, "architecture_sources"))]
    base.kernel(KERNEL.replace("case_fields:", listed % "add.cpp"))
    assert "among sources too" in base.findings()[0].message
    base.kernel(KERNEL.replace("case_fields:", cuda % "architecture_sources: {sm_70: [none.cu]}"))
    assert "none of architectures; there is sm_80, sm_90a" in base.findings()[0].message


def test_a_specialisation_leaves_out_sources_that_there_are(base):
    part = (
        "  cpu: {sources: [add.cpp], specialisations: {one: {without: [%s], only: {%s: ['1']}}}}\n"
    )
    cpu = "  cpu: {sources: [add.cpp]}\n"

    def message(without: str, field: str) -> str:
        base.kernel(KERNEL.replace(cpu, part % (without, field)))
        return base.findings()[0].message

    assert "specialisations.one: no source is named like 'b*.cpp'" in message("b*.cpp", "n")
    assert "specialisations.one: no source is left" in message("a*.cpp", "n")
    two = part.replace("[add.cpp]", "[add.cpp, b.cpp]")
    base.write("kernels/add/b.cpp", "")
    base.kernel(KERNEL.replace(cpu, two % ("b.cpp", "m")))
    assert "specialisations.one.only: 'm' is no case field" in base.findings()[0].message


def test_a_manifest_lists_what_its_files_include_target_by_target(base):
    one = "  cpu: {sources: [add.cpp]}\n"
    two = one + "  other:\n    sources: [add.cpp]\n    headers: [./sub/a.h, b.h]\n"
    path = base.kernel(KERNEL.replace(one, two))
    source = '#include <vector>\n#include MACRO\n#include "sub/a.h"\n'
    base.write("kernels/add/add.cpp", source)
    base.write("kernels/add/sub/a.h", '#include "../b.h"\n')
    base.write("kernels/add/b.h", "")
    assert base.rules() == [("manifest", line_of(path, "cpu:"))]
    assert base.findings()[0].message == (
        "add.cpp includes sub/a.h, which target cpu does not list; add it to the target's headers"
    )
    base.kernel(KERNEL.replace(one, two.replace(", b.h", "")))
    base.write("kernels/add/add.cpp", source)
    assert [(f.line, f.message.partition(",")[0]) for f in base.findings()] == [
        (line_of(path, "cpu:"), "add.cpp includes sub/a.h"),
        (line_of(path, "headers"), "sub/a.h includes b.h"),
    ]


def test_a_new_include_is_found_although_no_record_changed(base):
    base.kernel()
    base.write("kernels/add/add.h", "")
    assert base.findings(cached=True) == []
    base.write("kernels/add/add.cpp", '#include "add.h"\n')
    assert [f.rule for f in base.findings(cached=True)] == ["manifest"]


def test_a_file_that_vanishes_is_found_although_no_record_changed(base):
    base.kernel()
    assert base.findings(cached=True) == []
    (base.root / "kernels/add/add.cpp").unlink()
    assert [f.rule for f in base.findings(cached=True)] == ["manifest"]


BOUNDED = KERNEL.replace("help: how many}", "help: how many, minimum: 1, maximum: 4096}")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("{n: 0}", "n: 0 is below the minimum, 1"),
        ("{n: 4097}", "n: 4097 is above the maximum, 4096"),
        ("{n: 1}", None),
        ("{n: 4096}", None),
    ],
)
def test_a_case_outside_the_bounds_of_its_field_is_a_finding(base, case, said):
    base.kernel(BOUNDED.replace("{n: 1}, {n: 2}", case))
    found = [finding.message for finding in base.findings()]
    assert len(found) == (said is not None)
    assert all(said in message for message in found)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("type: float, minimum: 0.5", "nan", "x: nan is below the minimum, 0.5"),
        ("type: float, maximum: 2", "inf", "x: inf is above the maximum, 2"),
        ("type: ints, minimum: 0", "[3, -1]", "x: -1 is below the minimum, 0"),
        ("type: ints, minimum: 0", "[]", None),
        ("type: int, minimum: 2, default: 1", "3", "default: 1 is below the minimum, 2"),
        ("type: int, minimum: 2, maximum: 1", "3", "minimum 2 is above maximum 1"),
        ("type: str, minimum: 2", "3", "a field of type str has neither minimum nor maximum"),
        ("type: bool, maximum: 2", "true", "a field of type bool has neither"),
        ("type: int, minimum: inf", "3", "minimum"),
    ],
)
def test_bounds_are_of_numbers_and_hold_the_default(base, field, value, said):
    text = KERNEL.replace("help: how many}", f"help: how many}}\n  x: {{{field}, help: X}}")
    base.kernel(text.replace("{n: 2}", f"{{n: 2, x: {value}}}"))
    found = [finding.message for finding in base.findings()]
    assert (found == []) is (said is None), found
    assert said is None or said in found[0]


@pytest.mark.parametrize(
    ("fields", "case", "said"),
    [
        ("divides: n", "{n: 8, h: 0}", "h: 0 does not divide n, 8"),
        ("divides: n", "{n: 8, h: 3}", "h: 3 does not divide n, 8"),
        ("divides: n", "{n: 8, h: 2}", None),
        ("divides: n", "{n: 0, h: 0}", None),
        ("divides: n", "{n: 0, h: 2}", None),
        ("divides: n", "{h: 2}", None),
        ("divides: n, default: 3", "{n: 6}", "h: 3 does not divide n, 1"),
        ("divides: m", "{n: 8, h: 2}", "h: divides 'm', which is no field of type int"),
    ],
)
def test_a_field_that_divides_another_does_so_in_every_case(base, fields, case, said):
    text = KERNEL.replace(
        "help: how many}", f"help: how many}}\n  h: {{type: int, {fields}, help: H}}"
    )
    base.kernel(text.replace("{n: 2}", case))
    found = [finding.message for finding in base.findings()]
    assert (found == []) is (said is None), found
    assert said is None or said in found[0]


def test_a_field_divides_another_in_a_case_given_as_text():
    text = KERNEL.replace(
        "how many}", "how many, default: 1}\n  h: {type: int, divides: n, help: H}"
    )
    kernel = Kernel.model_validate(parse(text.encode(), "kernel.yaml").data)
    assert kernel.case_from("n=8 h=4")["h"] == 4
    with pytest.raises(ValueError, match="h: 0 does not divide n, 8"):
        kernel.case_from("n=8 h=0")
    assert kernel.outside({"n": 8, "h": 3}) == "h: 3 does not divide n, 8"
    with pytest.raises(ValueError, match="a field of type str divides nothing"):
        CaseField(type="str", help="h", divides="n")


def test_bounds_hold_for_a_case_given_as_text():
    field = CaseField(type="int", help="h", minimum=1, maximum=8)
    assert field.parse("n", "8") == 8
    with pytest.raises(ValueError, match="n: 9 is above the maximum, 8"):
        field.parse("n", "9")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("n=4097", "n: 4097 is above the maximum, 4096; and no case of small has that name"),
        ("m=1", "'m' is no case field"),
        ("one", "'one' is not FIELD=VALUE; and no case of small has that name"),
        ("the first", None),
        ("n=4096", None),
    ],
)
@pytest.mark.parametrize(
    "step", ["profile, case_set: small", "tune, variants: all, case_sets: small"]
)
def test_the_case_of_a_step_is_held_to_the_manifest_too(base, step, case, said):
    base.kernel(BOUNDED.replace("{n: 1}", "{n: 1, name: the first}"))
    parameter = f"    parameters:\n      case: {{type: str, default: {case}, help: H}}\n"
    more = RECIPE.replace("    steps:", parameter + "    steps:") + (
        "      - {id: more, title: M, expected: 1 s, timeout: 1 s, case: '${case}',"
        f" kind: {step}}}\n"
    )
    path = base.pattern(more=more)
    for cached in (True, True, False):  # the facts come out of the cache as they went in
        found = base.findings(cached=cached)
        lines = [line_of(path, "id: more")] if said else []
        assert [(one.rule, one.line) for one in found] == [("recipe", line) for line in lines]
        assert all(said in one.message for one in found)


@pytest.mark.parametrize(
    ("refused", "case", "said"),
    [
        ("{x: ['*']}", "{n: 2}, {n: 2, x: 1}", None),
        ("{x: ['*']}", "{n: 2, x: 0}, {n: 2, x: 1}", "targets.cpu takes no case"),
        ("{x: ['1']}", "{n: 2, x: 0}, {n: 2, x: 1}", None),
        ("{n: ['2']}", "{n: 2, x: 0}, {n: 2, x: 1}", "targets.cpu takes no case"),
    ],
)
def test_a_target_takes_a_case(base, refused, case, said):
    """A star does not stand for an absent value: a target that refuses windows takes the rest."""
    text = KERNEL.replace("help: how many}", "help: how many}\n  x: {type: int, help: X}")
    text = text.replace("{n: 1}, {n: 2}", case)
    base.kernel(text.replace("{sources:", f"{{not_taken: {refused}, sources:"))
    found = [finding.message for finding in base.findings()]
    assert (found == []) is (said is None), found
    assert said is None or said in found[0]
