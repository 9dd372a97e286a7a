"""The right remedy for real messages, and none for other texts."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from kbtool.runner import index, remedies
from kbtool.runner.explain import architectures_in
from kbtool.runner.field import is_about_cards, is_of_the_field, tells_trouble
from kbtool.runner.resemble import Words, counted, stem_of, words
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import explained  # noqa: E402


@pytest.fixture(scope="module")
def base() -> KnowledgeBase:
    return KnowledgeBase(ROOT)


@pytest.mark.slow
def test_messages_that_the_catalogue_was_developed_on_lead_to_the_right_remedy(base):
    # A fifth: all of them take minutes, which benchmarks/bench_explain.py has.
    every = explained.messages("develop")
    found = list(explained.answers(base, random.Random(30).sample(every, 600)))
    wrong = [answer.message.source for answer in found if not answer.is_right]
    assert len(wrong) <= len(found) / 10, wrong
    cards = [one for one in every if any(map(architectures_in, one.text.splitlines()))]
    assert len(cards) > 100
    assert not [one for one in explained.answers(base, cards) if one.is_for_another_card]


@pytest.mark.slow
def test_the_right_answers_are_symptoms_that_exist(base):
    names = {f"{tool.id}/{one.id}" for tool in base.catalogue.values() for one in tool.symptoms}
    for entry in base.patterns.values():
        names |= {f"{entry.record.id}/{one.id}" for one in entry.record.symptoms}
    for half in ("develop", "measure"):
        right = {name for message in explained.messages(half) for name in message.right}
        assert right <= names | {explained.NONE}


@pytest.mark.slow
def test_the_halves_share_no_message():
    halves = [explained.messages(half) for half in ("develop", "measure")]
    sources = [{message.source for message in half} for half in halves]
    texts = [{message.text for message in half} for half in halves]
    assert not sources[0] & sources[1]
    assert not texts[0] & texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("text", explained.unrelated(), ids=lambda text: text[:20])
def test_a_text_about_something_else_gets_nothing(base, text):
    assert [fit.name for fit in explained.explain(base, [text.encode()]).fits] == []


BUILDS = {
    "boost": "CMake Error at /usr/share/cmake/Modules/FindPackageHandleStandardArgs.cmake:230"
    " (message):\n  Could NOT find Boost (missing: Boost_INCLUDE_DIR)",
    "qt": "CMake Error at CMakeLists.txt:5 (find_package):\n  Could not find a package"
    ' configuration file provided by "Qt6" with any of the following names:\n    Qt6Config.cmake',
    "container": "OCI runtime exec failed: exec failed: unable to start container process: exec:"
    ' "bash": executable file not found in $PATH: unknown',
}
"""What tools print that build and run programs of any kind."""


@pytest.mark.parametrize("text", BUILDS.values(), ids=BUILDS)
def test_a_text_that_names_no_card_gets_no_advice_on_cards(base, text):
    fits = explained.explain(base, [text.encode()]).fits
    resembling = [fit for fit in fits if fit.shared]
    assert [fit.title for fit in resembling if is_about_cards(f"{fit.title} {fit.advice}")] == []
    with_card = explained.explain(base, [f"{text} for the CUDA toolkit, libtorch".encode()]).fits
    assert any(is_about_cards(f"{fit.title} {fit.advice}") for fit in with_card)


@pytest.mark.parametrize(
    "name",
    [
        *("PyTorch", "libcudart", "pytorch", "a GPU", "bf16", "__global__"),
        *("two 4090s", "a 3080 Ti", "a Maxwell card", "with 3090", "8 threads per block"),
        *("TTFT", "a GEMM", "MultiGPU", "sglang", "两台H20部署", "DDP掉精度"),
    ],
)
def test_a_name_of_the_field_is_known_as_people_write_it(name):
    assert is_about_cards(name) and is_of_the_field(name)


def test_the_words_of_a_knowledge_base_are_read_once(monkeypatch):
    made = []
    monkeypatch.setattr(index, "Words", lambda records: made.append(1) or Words(records))
    one, other = KnowledgeBase(ROOT), KnowledgeBase(ROOT)
    first = remedies.search(one, "slow build").hits
    assert remedies.search(one, "slow build").hits == first
    assert len(made) == 1
    assert remedies.search(other, "slow build").hits == first
    assert len(made) == 2


@pytest.mark.parametrize(
    ("query", "unknown"),
    [
        ("NaN", []),
        ("NaN zxcvb NaN zxcvb", ["zxcvb"]),
        ("zxcvbQwert in shared_qwert", ["zxcvbqwert", "shared_qwert"]),
        ("", []),
    ],
)
def test_a_word_in_no_record_is_told_as_it_was_asked(base, query, unknown):
    assert remedies.search(base, query).unknown == unknown


def test_a_word_counts_as_often_as_it_stands_there():
    found = Words([("a", counted([("tile tile", 1)])), ("b", counted([("tile other", 1)]))]).find(
        "tiles"
    )
    assert [one.item for one in found] == ["a", "b"]


def test_a_line_that_reports_an_error_needs_fewer_words_of_a_symptom_than_prose(base):
    def names(text: str) -> list[str]:
        return [fit.name for fit in explained.explain(base, [text.encode()]).fits]

    assert "nvcc/unsupported-architecture" in names(
        "mytool: error: frob 'quux' got zork for wibble: architecture of nvcc unsupported by kazoo"
    )
    assert not names(
        "When the committee of the library had missed the point of nvcc, nobody asked the author"
        " why the architecture of the old house was left to the garden, the driver and the weather"
    )


def test_what_resembles_is_of_a_tool_that_the_text_has_a_sign_of(base):
    text = "NVRM: nvAssertFailedNoLog: Assertion failed: NULL != pRpc @ rpc.c:65"  # of the driver
    found = explained.explain(base, [text.encode()]).fits
    assert not [fit.name for fit in found if fit.name.startswith("nvcc/")]


def test_a_record_is_found_by_a_word_that_only_its_expression_has(base):
    symptom = next(one for one in base.catalogue["performance"].symptoms if one.id == "clocks-drop")
    written = f"{symptom.title} {symptom.words} {symptom.advice} {symptom.example}"
    assert "capped" in symptom.match and "capped" not in written
    assert "performance/clocks-drop" in [hit.id for hit in remedies.search(base, "capped").hits]


@pytest.mark.parametrize(
    ("question", "right"),
    [
        (
            "half of the GPUs wait at the start of the second epoch, training stops",
            "nccl/hangs",
        ),
        (
            "for large blocks my CUDA kernel has lower bandwidth, I have no idea why",
            "performance/size-cliff",
        ),
    ],
)
def test_a_question_needs_neither_the_sign_of_a_tool_nor_half_of_its_words(base, question, right):
    assert right in [fit.name for fit in explained.explain(base, [question.encode()]).fits[:3]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("training hangs on the second GPU", True),
        ("GPU usage stays at 25%", True),
        ("this server has a low throughput with my model", True),
        ("my kernel freezes", True),
        ("free kernels from the author", False),
        ("demand for GPUs is lower than analysts expected", False),
        ("a new kernel for the GPU, with benchmarks", False),
    ],
)
def test_trouble_is_what_goes_wrong_and_what_a_computer_was_doing(text, told):
    assert tells_trouble(text) is told


def test_a_general_cause_keeps_records_that_the_text_resembles_beside_it(base):
    text = "Could NOT find Frob (missing: FROB_DIR), which the toolkit of CUDA needs"
    found = explained.explain(base, [text.encode()]).fits
    assert [fit.how for fit in found][:3] == ["match", "resemblance", "resemblance"]


@pytest.mark.parametrize(
    "wording",
    [
        "cuStreamSynchronize returned error 700",
        "PhysX error: SynchronizeStreams cuEventRecord failed with error 700",
        "cudaMemcpy failed with error code 700",
        "cuEventSynchronize() 700",
        "Check failed: error == cudaSuccess (77 vs. 0)",
        "CudaAPIError: [700] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR",
        "Error invoking kernel: CUDA error (700)",
    ],
)
def test_the_number_of_an_error_of_cuda_is_enough_to_know_it(base, wording):
    def names(text: str) -> list[str]:
        return [fit.name for fit in explained.explain(base, [text.encode()]).fits]

    assert "cuda-runtime/illegal-address" in names(wording)
    other = wording.replace("700", "702").replace("77", "6")
    assert "cuda-runtime/illegal-address" not in names(other)
    assert "cuda-runtime/launch-timeout" in names(other)


def test_the_number_of_a_line_is_no_number_of_an_error(base):
    text = 'CUDA error at main.cu:700 code=719(cudaErrorLaunchFailure) "cudaDeviceSynchronize()"'
    names = [fit.name for fit in explained.explain(base, [text.encode()]).fits]
    assert "cuda-runtime/launch-failure" in names
    assert "cuda-runtime/illegal-address" not in names


def test_parts_of_a_compound_name_are_words():
    assert {"out", "memory"} - set(dict(words("XlaOutOfMemoryError"))) == {"out"}
    assert "provider" in dict(words("CUDAExecutionProvider"))


def test_words_are_found_by_stem_and_synonym_and_rare_ones_count_more():
    records = Words(
        [
            ("build", counted([("the build takes long", 1)])),
            ("race", counted([("a race in shared memory", 1)])),
            ("memory", counted([("memory of the card", 1), ("memory", 1)])),
        ]
    )
    assert [hit.item for hit in records.find("compiling slowly")] == ["build"]
    assert [hit.item for hit in records.find("race memory")] == ["race", "memory"]
    assert records.find("xylophone") == []
    assert stem_of("compiles") == stem_of("compiling") == stem_of("compiled")
