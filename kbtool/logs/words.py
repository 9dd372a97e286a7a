"""The words by which headings, keys and columns say what stands under them."""

from __future__ import annotations

import re

_ROLES = (
    ("plan", r"\bnext\b|\bplan(?:s|ned)?\b|roadmap|to.?do\b|\bgoals? for\b|future|upcoming"
             r"|\bnächste|\bprochaine|\bsuite\b|\bpróxim|\bprossim|\bvolgende|\bплан|следующ|次の|今後|计划|下一步"),
    ("expected", r"expected|projected|target performance|forecast|projection|predicted"),
    ("lessons", r"\blessons?\b|learned|learnt|learnings?|takeaways?|insights?|\blehren\b"
                r"|erkenntnis|\bleçons?\b|教訓"),
    ("decision", r"\bdecisions?\b|\boptions\b|trade-?offs?|alternatives"),
    ("compare", r"\bvs\.?\b|comparison|previous sessions|cumulative|history|all sessions|so far"),
    ("cost", r"\bcosts?\b|spend|spent|billing|budget|expenses?|\bmoney\b|\bkosten\b|\bcoûts?\b"
             r"|\bcostes?\b|\bcost[oi]\b|費用"),
    ("bug", r"\bbugs?\b|\bissues?\b|\bblockers?\b|\bproblems?\b|\bdefects?\b|\bfaults?\b"
            r"|\bfehler\b|\berreurs?\b|\berrores\b|\bproblemi\b|\berrori\b|\bproblemen\b|\bошибки\b|不具合"),
    ("deliverable", r"deliverables?|artifacts?|files? (?:created|changed|modified|written)"),
    ("commit", r"\bcommits?\b|\bgit\b"),
    ("pattern", r"\bpatterns?\b"),
    ("measurement", r"results?|measure|benchmark|performance|latenc|baseline|correctness|profil"
                    r"|throughput|timings?|numbers|accuracy|ergebnis|messung|\bmesures?\b"
                    r"|\brésultats?\b|\bresultados?\b|\bmedidas?\b|\brisultati\b|\bmisure\b|\bresultaten\b|\bрезультаты\b|結果|測定|结果|测试"),
    ("environment", r"environment|hardware|software|machine|instance|versions|configuration"
                    r"|set-?up"),
    ("session", r"session (?:objective|info|summary|details|status|tracking|times?)|^summary"
                r"|overview|metadata|^(?:key )?facts?\b|at a glance|in brief"
                r"|objective"),
)  # fmt: skip
_ROLE = tuple((role, re.compile(words, re.IGNORECASE)) for role, words in _ROLES)


def role_of(headings: tuple[str, ...]) -> str:
    """What stands under these headings: the innermost one that says so counts, the title not."""
    for heading in reversed(headings[1:]):
        role = role_of_heading(heading)
        if role:
            return role
    return ""


def role_of_heading(heading: str) -> str:
    """What one heading says of the lines under it."""
    return next((role for role, words in _ROLE if words.search(heading)), "")


FIELDS = tuple((field, re.compile(rf"(?i:{words})\Z")) for field, words in (
    ("duration", r"(?:total |session |actual |wall )*(?:duration|time spent|elapsed(?: time)?"
                 r"|actual time|time taken|total time|wall ?time|net time|length)"
                 r"|(?:gesamt)?dauer|durée|duración|durata|duur|длительность|所要時間|作業時間|时长|用时|耗时"),
    ("started", r"(?:(?:session|times?|clock) )?(?:start(?:ed)?|begin|began|from|opened)"
                r"(?: time| at)?|beginn|anfang|début|inicio|inizio|начало"
                r"|開始(?:時刻|時間)?|开始(?:时间)?"),
    ("ended", r"(?:session [\w+]+ |session |times? |clock )?(?:end(?:ed)?|finish(?:ed)?"
              r"|stop(?:ped)?|paused|completed|until|closed)(?: time| at)?|e(?:i)?nde|fine?|конец"
              r"|終了(?:時刻|時間)?|结束(?:时间)?"),
    ("updated", r"last (?:updated?|changed|modified)|generated(?: on| at)?|updated(?: at)?"),
    ("budget_time", r"(?:time )?(?:budget|limit|box)|time ?-?box(?:ed)?|budget time|allotted time"),
    ("budget_money", r"(?:cost |money )?(?:budget|limit|cap)|budget money"),
    ("day", r"(?:session )?(?:date|day)|datum|fecha|data|дата|日付|実施日|日期"),
    ("times", r"time|when|hours|clock|zeit|heures?|hora|ora|tijd|время|時刻"),
    ("label", r"session|label|session (?:id|name|label|number)"),
    ("status", r"(?:session )?status|state"),
    ("objective", r"(?:primary |main |session )?(?:objective|goal|aim)|ziel|objectif|objetivo"
                  r"|obiettivo|目的"),
    ("outcome", r"(?:final |overall )?(?:results?|outcome)"),
    ("grade", r"grade|mark"),
    ("engineer", r"(?:engineer|author|operator|who|by)"),
    ("branch", r"(?:git )?branch"),
    ("cost", r"(?:total |session |actual )*(?:costs?|spend|spent|bill(?:ed)?|price|money)(?: "
             r"total)?|kosten|coût|coste|costo|стоимость|費用"),
))  # fmt: skip
TIMES = dict(FIELDS)["times"]
"""A key, or the item around, of what the session's own times are."""


def is_day(key: str) -> bool:
    """Whether a key names the day of the session, or a time that may have its date."""
    return any(field in {"day", "started"} and words.match(key) for field, words in FIELDS)


ENVIRONMENT = tuple((field, re.compile(rf"(?i:{words})\Z")) for field, words in (
    ("card", r"gpu|card|accelerator|device|gpu (?:type|model|name)|(?:grafik)?karte|carte|tarjeta"
             r"|scheda|kaart|(?:видео)?карта"),
    ("instance", r"(?:gpu )?instance(?: name)?|vm|host(?:name)?"),
    ("zone", r"zone|region"),
    ("driver", r"(?:nvidia |gpu )?driver(?: version)?"),
    ("cuda", r"cuda(?: version| toolkit)?"),
    ("torch", r"py ?torch(?: version)?|torch(?: version)?"),
    ("numpy", r"numpy(?: version)?"),
    ("python", r"python(?: version)?"),
    ("nvcc", r"nvcc(?: version)?|compiler"),
    ("cpu", r"cpu|processor"),
    ("compute_capability", r"compute capability|sm|arch(?:itecture)?"),
    ("card_memory", r"(?:gpu |device |card )?(?:memory|vram)|(?:grafik)?speicher|mémoire|memoria"),
    ("shared_memory", r"(?:max(?:imum)? )?shared memory|smem"),
))  # fmt: skip

KINDS = (
    ("gpu", re.compile(r"(?i:\b(?:gpus?|cards?|compute|instance|vm|cloud|L4|A100|H100|H200|T4"
                       r"|A10G?|V100"
                       r"|B200|rental)\b)")),
    ("ai", re.compile(r"(?i:\b(?:ai|cursor|claude|chatgpt|gpt|llm|assistant|copilot|codex"
                      r"|gemini|api)\b)")),
    ("engineer", re.compile(r"(?i:\b(?:engineers?|engineering|developers?|humans?|labou?r|people"
                            r"|salary)\b)")),
    ("other", re.compile(r"(?i:\b(?:storage|disks?|egress|network|traffic|licen[cs]es?)\b)")),
)  # fmt: skip


def kind_of(text: str) -> str | None:
    """What a cost line pays for; ``None`` unless the text names one kind and no other."""
    found = [kind for kind, words in KINDS if words.search(text)]
    return found[0] if len(found) == 1 else None


TOTAL = re.compile(r"(?i:\b(?:total|sum|overall|all|subtotal|average|mean|avg)\b)")
MISSING = re.compile(
    r"(?i:\s*(?:n/?a|none|unknown|tbd|\?+|[-–—]*|not (?:tracked|billed|measured|stated))\s*)\Z"
)
HYPOTHETICAL = re.compile(
    r"(?i:\b(?:if|would|could|expected|estimated? to|option|cheaper|savings?|saved?|vs\.?"
    r"|versus|compared"
    r"|keep|keeping|stop|stopped|next|planned|projected|per session|per run|cumulative|so far"
    r"|to date)\b)"
)
SESSION = re.compile(
    r"\b[Ss](?:ession|ESSION)\s+#?(N(?:\+\d+[A-Za-z]?)?|[A-Z]?-?\d+[A-Za-z]?)(?![\w+])"
)
STATUS = (
    ("terminated", re.compile(r"(?i:\b(?:terminated|aborted|killed|preempted|cancelled"
                              r"|canceled)\b)")),
    ("paused", re.compile(r"(?i:\b(?:paused|suspended|on hold)\b)")),
    ("complete", re.compile(r"(?i:\b(?:completed?|finished|closed|done|ended)\b)")),
)  # fmt: skip


def status_of(text: str) -> str | None:
    """How a session stands, by one word of the text; ``None`` where there is none, or several."""
    if re.search(r"(?i:\b(?:in|not|un)\W?(?:complete|finished|done))", text):
        return None
    found = [status for status, words in STATUS if words.search(text)]
    return found[0] if len(found) == 1 else None
