"""What reports in other languages than English call units, counts and bounds.

German, French, Spanish, Italian, Dutch, Russian, Japanese and Chinese. In a language that is not
here a bound is not seen: "about 3 h" would be read as 3 h.
"""

from __future__ import annotations

TIMES_ELSEWHERE = {
    # German
    "Stunde": "h", "Stunden": "h", "Std.": "h", "Std": "h", "Minute": "min", "Minuten": "min",
    "Min.": "min", "Sekunde": "s", "Sekunden": "s", "Sek.": "s", "Tage": "days",
    # French
    "heure": "h", "heures": "h", "seconde": "s", "secondes": "s", "jours": "days",
    # Spanish
    "hora": "h", "horas": "h", "minuto": "min", "minutos": "min", "segundo": "s",
    "segundos": "s",
    # Italian
    "ora": "h", "ore": "h", "minuti": "min", "secondo": "s", "secondi": "s", "giorni": "days",
    # Dutch
    "uur": "h", "uren": "h", "minuut": "min", "minuten": "min", "seconden": "s", "dagen": "days",
    # Russian
    "ч": "h", "ч.": "h", "час": "h", "часа": "h", "часов": "h", "мин": "min", "мин.": "min",
    "минут": "min", "минуты": "min", "с": "s", "сек": "s", "секунд": "s", "мс": "ms",
    "мкс": "us", "нс": "ns", "дня": "days", "дней": "days",
    # Japanese and Chinese
    "時間": "h", "分": "min", "秒": "s", "ミリ秒": "ms", "マイクロ秒": "us", "小时": "h",
    "分钟": "min",
}  # fmt: skip
"""A unit of time → as records write it."""

BYTES_ELSEWHERE = {
    "КБ": "KB", "МБ": "MB", "ГБ": "GB", "ТБ": "TB", "МБ/с": "MB/s", "ГБ/с": "GB/s", "ТБ/с": "TB/s",
}  # fmt: skip

NOUNS_ELSEWHERE = {
    "Tests": "tests", "Läufe": "runs", "Läufen": "runs", "Zeilen": "lines", "Blöcke": "blocks",
    "Blöcken": "blocks", "Fälle": "cases", "Fällen": "cases", "Dateien": "files",
    "lignes": "lines", "fichiers": "files", "blocs": "blocks", "essais": "trials",
    "registres": "registers",
    "líneas": "lines", "archivos": "files", "bloques": "blocks", "hilos": "threads",
    "pruebas": "tests", "casos": "cases", "registros": "registers",
    "righe": "lines", "blocchi": "blocks", "casi": "cases", "registri": "registers",
    "regels": "lines", "blokken": "blocks", "gevallen": "cases",
    "тестов": "tests", "теста": "tests", "строк": "lines", "блоков": "blocks",
    "потоков": "threads", "регистров": "registers", "запусков": "launches",
}  # fmt: skip
"""What is counted → as records write it."""

RELATIONS = {
    "~": (
        "about", "approximately", "approx.", "approx", "around", "roughly", "circa", "ca.",
        "nearly", "almost", "close to", "some", "ca",
        "etwa", "rund", "ungefähr", "zirka",
        "environ", "à peu près", "près de", "presque",
        "aproximadamente", "alrededor de", "casi", "unos", "unas",
        "quasi", "all'incirca",
        "ongeveer", "bijna",
        "около", "примерно", "приблизительно", "почти",
        "約", "およそ", "ほぼ", "约", "大约", "大概",
    ),
    "<": (
        "fewer than", "less than", "shorter than", "smaller than", "lower than", "faster than",
        "under", "just under", "below",
        "weniger als", "unter", "knapp",
        "kleiner als", "moins de", "inférieur à", "inférieure à", "menos de", "inferior a",
        "meno di", "inferiore a", "sotto i", "minder dan", "менее", "менее чем", "меньше",
        "不到", "少于", "低于",
    ),
    ">": (
        "more than", "longer than", "larger than", "greater than", "higher than", "slower than",
        "over", "just over", "above", "exceeds", "exceeding", "exceeded", "beyond",
        "mehr als", "über", "gut",
        "größer als", "plus de", "supérieur à", "supérieure à", "más de", "superior a", "più di",
        "superiore a", "oltre", "meer dan", "более", "более чем", "больше", "свыше",
        "超过",
    ),
    ">=": (
        "at least", "no less than", "a minimum of",
        "mindestens", "au moins", "al menos", "almeno", "minstens", "ten minste", "не менее",
        "至少",
    ),
    "<=": (
        "at most", "no more than", "up to", "as much as", "a maximum of",
        "höchstens", "maximal", "bis zu", "au plus", "au maximum", "jusqu'à", "hasta",
        "como máximo",
        "fino a", "al massimo", "hoogstens", "maximaal", "tot", "до", "не более", "最多",
    ),
}  # fmt: skip
"""A bound as records write it → the words for it, which stand before a figure."""

ALSO_TO = frozenset(("up to", "bis zu", "jusqu'à", "hasta", "fino a", "tot", "до"))
"""Those that are "to" as well, as in "from 180 GB/s to 246 GB/s"."""
