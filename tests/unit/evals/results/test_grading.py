"""Turns that end together are graded together, each by what was said in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.small_runs import Answering, play, write_set

CONVERSATIONS, TURNS = 40, 2


def test_turns_that_end_together_change_threads_together(tmp_path, monkeypatch):
    handed_over = []
    submit = ThreadPoolExecutor.submit

    def counted(self, *work, **named):
        handed_over.append(self._thread_name_prefix)
        return submit(self, *work, **named)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    data = write_set(tmp_path / "data", CONVERSATIONS, TURNS)
    wrong = {(f"c{number:02}", number % TURNS) for number in range(0, CONVERSATIONS, 3)}
    run = play(data, tmp_path / "run", Answering(wrong=wrong), concurrency=CONVERSATIONS)
    scored = {(row.conversation, row.turn): row.scores["exact_match"].value for row in run.folder.turns()}
    assert scored == {
        (f"c{c:02}", t): float((f"c{c:02}", t) not in wrong) for c in range(CONVERSATIONS) for t in (0, 1)
    }
    assert 0 < handed_over.count("grading") <= CONVERSATIONS * TURNS / 4
