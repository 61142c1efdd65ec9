"""Grades four decisions by wording on labelled texts of two authors, by language, beside the older rule.

    python evals/bench/labels.py                            # the half that the rules' authors had not seen
    python evals/bench/labels.py --half build
    python evals/bench/labels.py --wrong                    # also each text that a decision gets wrong
    python evals/bench/labels.py SETS/squad2 PACKS/locomo   # also on public sets and packs
    python evals/bench/labels.py SETS/* PACKS/* --write     # results/labels.md

The decisions: to store a message, to search for it, to call a reply a refusal, to call an answer right. The labels are
in `evals/labels`. Brackets hold 95 % intervals: Wilson's of a share, of kappa a bootstrap over texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from labelled import (
    DECISIONS,
    LANGUAGES,
    RIGHT,
    Decision,
    Fraction,
    Outside,
    Row,
    add,
    auc_cell,
    by_language,
    count,
    grade_pairs,
    grade_replies,
    is_refusal,
    is_searched,
    is_stored,
    kappa_cell,
    read,
    read_outside,
    table,
    texts_of,
)

from agentlab.knowledge.refusal import declines

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "results" / "labels.md"
OWN_SETS = tuple(ROOT / "datasets" / name for name in ("memory", "laws", "research"))
EXAMPLES = {
    "stored": (
        "Hi, my name is Ada.",
        "Please remember that I am allergic to nuts.",
        "你好，我叫李明。",  # noqa: RUF001
        "Привет, меня зовут Иван",
    ),
    "searched": ("Hello, offside rule", "谢谢，越位是什么", "ok goalkeeper handling rule"),  # noqa: RUF001
}
FIRST = {
    "facts stored": "99/110",
    "questions searched": "110/110",
    "questions not stored": "46/70",
    "courtesy not stored": "11/40",
    "courtesy not searched": "10/40",
}
"""Counts on the held messages, by the rules before their author had read these messages."""
BEFORE = {"en": "0.10", "all": "0.01"}
"""Kappa of the earlier wording on the held replies, which was 0 outside English."""
FIRST_PAIRS = "261/271 decided, kappa 0.63"
"""Held pairs, graded before the author of the rules had read them; that author had read the build half."""
KINDS = """## Kinds of failures, held half

Messages. Mended kinds were read in the held half: only *first* is a figure of unseen texts.

* Mended, facts lost: a verb without its subject (`no puedo`, `posso`, `preciso de`); a clause after `when` or `what`
  with a noun; Japanese and Chinese words for anything and anywhere; situations without the user (`As a nurse, ...?`).
* Mended, questions stored: words between `why` and its verb, spellings of phones, Arabic letters and joined words,
  question words after a preposition, an opener that contains a word of courtesy.
* Mended, courtesy searched: laughter, abbreviations and wishes.
* Open: a fact inside the only clause of a question (six texts); questions in Chinese and Japanese with the question
  word inside and no mark; praise that tells a story.

Replies. Nobody who wrote wording or weights has read a held reply; they knew the kinds below. With a first rule, that a
reply answers where one sentence does, kappa was .74 in English (16 of 20 decided) and .47 in others (170 of 180).

* Of the earlier wording: no refusal outside English; in English subjects that are not in a list (trail guide, recipe
  card), a reference to somebody else, a scope of topics, and long replies with sentences around the refusal.

Pairs. Mended kinds were read in the held half: only *first* is a figure of unseen texts.

* Mended, right answers rejected: `miles per hour`, `a year and a half`, `four dollars fifty`, cents beside a currency,
  parts as a percentage, decades, Roman numerals, letters in brackets, `isn't` after a "no" to the question.
* Mended, wrong answers accepted: ranges with another unit, another name of the same rank, a prefix that denies, what a
  later clause corrects.
* Open, right answers rejected: times with a point, the opposite of an opposite (`leave it shut`), holidays.
* Open, wrong answers accepted: a part of a list, one item exchanged, one of two words of a thing (`the green valve`).
  The judge of LoCoMo calls 4 of 5 such answers right, so they keep the share of their words.
* Not decided: synonyms and paraphrases of a few words.
"""


def message_section(rows: Sequence[Row]) -> list[str]:
    groups, decisions = by_language(rows), DECISIONS.values()
    cells = [
        [name, *(f"{count(d.rule, texts_of(d, group))}, {count(d.older, texts_of(d, group))}" for d in decisions)]
        for name, group in groups.items()
    ]
    pooled = [
        [
            d.name,
            *(count(rule, texts_of(d, rows)).with_interval() for rule in (d.rule, d.older)),
            FIRST[d.name],
        ]
        for d in decisions
    ]
    return [
        "## Messages\n\nTwo counts of right decisions: by `rules`, and by `words`, the older rule.\n",
        *table(["language", *DECISIONS], cells),
        "All languages together. *First* is `rules` on the held half as it was before anybody who changes the"
        " rules had read these messages.\n",
        *table(["decision", "`rules`", "`words`", "first"], pooled),
    ]


def reply_section(rows: Sequence[Row]) -> list[str]:
    cells = []
    for name, group in by_language(rows).items():
        graded, worded = grade_replies(group), grade_replies(group, declines)
        kappa = kappa_cell(graded.labels, graded.is_positive)
        counts = [graded.missed.with_interval(), graded.false.with_interval()]
        cells.append([name, graded.decided, kappa, *counts, f"{worded.kappa:.2f}", BEFORE.get(name, "0.00")])
    return [
        "## Replies\n\nVerdicts against the label, where wording and embedder agree. *Missed* are refusals that count"
        " as answers, *false* answers that count as refusals. *English wording* decides each reply alone; *before* is"
        " kappa on the held half of the wording that the three verdicts replace.\n",
        *table(["language", "decided", "kappa", "missed", "false", "English wording", "before"], cells),
    ]


def pair_section(rows: Sequence[Row]) -> list[str]:
    english = [row for row in rows if row["lang"] == "en"]
    kinds = {kind: [row for row in english if row["kind"] == kind] for kind in sorted({row["kind"] for row in english})}
    lines = [
        f"## Pairs\n\n`answer_correctness` of at least {RIGHT:g} against the label of an answer and a reference.\n",
        f"First, before anybody who changes the rules had read the held half: {FIRST_PAIRS}.\n",
    ]
    for title, groups in (("kind, English", kinds), ("language", by_language(rows))):
        cells = []
        for name, group in groups.items():
            graded = grade_pairs(group)
            kappa = kappa_cell(graded.labels, graded.is_positive)
            cells.append([name, graded.decided, graded.missed, graded.false, kappa, auc_cell(graded)])
        lines += table([title, "decided", "right, rejected", "wrong, accepted", "kappa", "AUC"], cells)
    return lines


def promise_section(half: str, outside: Outside) -> list[str]:
    """Return a table of requirements, with the result on the labels and if the requirement holds."""
    rows = read("messages", half)
    groups = {name: group for name, group in by_language(rows).items() if name in LANGUAGES}
    stored, searched, left_out, _, courtesy = DECISIONS.values()
    replies, pairs = by_language(read("replies", half)), grade_pairs(read("pairs", half))
    english, others = grade_replies(replies["en"]), grade_replies(replies["not en"])
    everything = grade_replies(replies["all"])

    def misses(decision: Decision) -> dict[str, int]:
        shares = {name: count(decision.rule, texts_of(decision, group)) for name, group in groups.items()}
        return {name: fraction.misses for name, fraction in shares.items() if fraction.misses}

    def at_most_one(decision: Decision) -> tuple[str, bool]:
        missed = misses(decision)
        return ", ".join(f"{name} {n}" for name, n in missed.items()) or "none", max(missed.values(), default=0) <= 1

    def all_of(decision: Decision, group: Sequence[Row] = rows) -> Fraction:
        return count(decision.rule, texts_of(decision, group))

    both = all_of(stored, read("messages", "both"))
    searched_all = add(all_of(searched), outside.searched)
    examples = [count(is_stored, EXAMPLES["stored"]), count(is_searched, EXAMPLES["searched"])]
    foreign = all_of(left_out, [row for row in rows if row["lang"] != "en"])
    demands: list[tuple[str, object, bool]] = [
        ("stored: at most one miss a language", *at_most_one(stored)),
        ("stored: .99 of both halves", both.with_interval(), both.rate >= 0.99),
        ("stored: 229 of 229 of datasets/memory", outside.stored, outside.stored == (229, 229)),
        ("searched: at most one miss a language", *at_most_one(searched)),
        ("searched: .995 with all sets", searched_all.with_interval(), searched_all.rate >= 0.995),
        ("seven examples, none missed", f"{examples[0]}, {examples[1]}", not any(each.misses for each in examples)),
        (
            "questions not stored: .80 in English",
            all_of(left_out, groups["en"]),
            all_of(left_out, groups["en"]).rate >= 0.8,
        ),
        ("questions not stored: .60 in others", foreign.with_interval(), foreign.rate >= 0.6),
        (
            "courtesy not searched: .50 in English",
            all_of(courtesy, groups["en"]),
            all_of(courtesy, groups["en"]).rate >= 0.5,
        ),
        ("refusals: kappa .8 in English", f"{english.kappa:.2f}", english.kappa >= 0.8),
        ("refusals: kappa .6 in others", f"{others.kappa:.2f}", others.kappa >= 0.6),
        ("refusals: .70 decided", everything.decided, everything.decided.rate >= 0.7),
        ("refusals: at most 3 % false", everything.false.with_interval(), everything.false.rate <= 0.03),
        *(("refusals: at most 2 complete answers", fraction, fraction.right <= 2) for fraction in outside.complete),
        ("pairs: kappa .80 where decided", f"{pairs.kappa:.2f}", pairs.kappa >= 0.8),
        ("pairs: .75 decided", pairs.decided, pairs.decided.rate >= 0.75),
        *(
            (
                "pairs: kappa .63 and AUC .925 with a judge",
                f"{g.kappa:.3f}, {g.auc:.3f}",
                g.kappa >= 0.63 and g.auc >= 0.925,
            )
            for g in outside.rated
        ),
    ]
    cells = [[demand, figure, "holds" if holds else "**fails**"] for demand, figure, holds in demands]
    return ["## Demands\n", *table(["demand", "figure", "verdict"], cells)]


def wrong_lines(half: str) -> list[str]:
    """Return each text that a decision gets wrong."""
    lines = [
        f"{decision.name}: {row['id']}: {row['text']}"
        for decision in DECISIONS.values()
        for row in read("messages", half)
        if decision.applies(row) and not decision.rule(row["text"])
    ]
    lines += [
        f"replies, {'missed' if row['declines'] else 'false'}: {row['id']}: {row['text']}"
        for row in read("replies", half)
        if is_refusal(row["text"]) is not None and bool(is_refusal(row["text"])) != row["declines"]
    ]
    for row in read("pairs", half):
        graded = grade_pairs([row])
        if graded.decided.right and bool(graded.is_positive[0]) != row["right"]:
            verdict = "rejected" if row["right"] else "accepted"
            lines.append(f"pairs, {row['kind']}, {verdict}: {row['id']}: {row['reference']} <- {row['answer']}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="public sets and packs, beside our own sets")
    parser.add_argument("--half", choices=("held", "build"), default="held", help="half of the labels (default: held)")
    parser.add_argument("--wrong", action="store_true", help="print the texts that a decision gets wrong, too")
    parser.add_argument("--write", action="store_true", help="write results/labels.md instead of printing")
    options = parser.parse_args()
    outside = read_outside([*OWN_SETS, *options.folders])
    lines = [
        "# Labels: four decisions by wording\n",
        f"`python evals/bench/labels.py SETS/* PACKS/* --write` makes this page from the {options.half} half of\n"
        "[evals/labels](../evals/labels/README.md). Brackets hold 95 % intervals: Wilson's of a share,\n"
        "of kappa a bootstrap over texts. Pairs are near misses on purpose.\n",
        *promise_section(options.half, outside),
        *message_section(read("messages", options.half)),
        *reply_section(read("replies", options.half)),
        *pair_section(read("pairs", options.half)),
        *outside.lines,
        *([KINDS] if options.half == "held" else []),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)
    if options.wrong:
        print("\n".join(wrong_lines(options.half)))


if __name__ == "__main__":
    main()
