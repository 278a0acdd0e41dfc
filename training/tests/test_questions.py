"""The question generator: exact answers, honest splits, plans that fit their questions. Needs neither torch nor a model."""

import json
import re

import pytest

from podium_training import everyday, exact, facts, heldout, plan, wordings
from podium_training.operations import JOINS, RULES
from podium_training.questions import Generator

BANK = wordings.load()


@pytest.mark.parametrize(
    ("operation", "arguments", "answer"),
    [
        ("days_between", {"a": "3 March 2024", "b": "17 May 2025"}, "440"),
        ("days_between", {"a": "2025-05-17", "b": "March 3, 2024"}, "440"),
        ("weekday", {"x": "17 May 2025"}, "Saturday"),
        ("add_days", {"x": "28 February 2024", "n": "2", "p": "days"}, "1 March 2024"),
        ("subtract_days", {"x": "1 January 2000", "n": "1", "p": "week"}, "25 December 1999"),
        ("year_of", {"x": "2031-07-09"}, "2031"),
        ("day_of_year", {"x": "31 December 2024"}, "366"),
        ("minutes_between", {"a": "09:40", "b": "14:05"}, "265"),
        ("add", {"x": "1.5", "n": "2.5"}, "4"),
        ("subtract", {"x": "3", "n": "10"}, "-7"),
        ("divide", {"x": "2", "n": "3"}, "0.6667"),
        ("divide", {"x": "1", "n": "64"}, "0.015625"),
        ("remainder", {"x": "17", "n": "5"}, "2"),
        ("percent", {"x": "80", "n": "15"}, "12"),
        ("expression", {"e": "17 * (4 + 3)"}, "119"),
        ("expression", {"e": "7 - 2 - 1"}, "4"),
        ("expression", {"e": "1 / 3 + 2"}, "2.3333"),
        ("join_subtract", {"x": "3", "y": "10"}, "7"),
        ("join_minus", {"x": "3", "y": "10"}, "-7"),
        ("spell", {"x": "5280"}, "five thousand two hundred and eighty"),
        ("spell", {"x": "1000042"}, "one million and forty-two"),
        ("spell", {"x": "-15"}, "minus fifteen"),
        ("unspell", {"x": "two hundred and six thousand and nine"}, "206009"),
        ("reverse", {"x": "Paris"}, "siraP"),
        ("letters", {"x": "forty-two"}, "8"),
        ("vowels", {"x": "Oslo"}, "2"),
        ("last_letter", {"x": "Tuesday"}, "y"),
        ("word_count", {"x": "five thousand forty-two"}, "3"),
        ("sort_letters", {"x": "Lantern"}, "aelnnrt"),
        ("convert", {"x": "26", "u": "miles", "v": "kilometres"}, "41.842944"),
        ("convert", {"x": "-40", "u": "degrees Celsius", "v": "degrees Fahrenheit"}, "-40"),
        ("convert", {"x": "3", "u": "dozens", "v": "units"}, "36"),
        ("sort_descending", {"x": "4, 15, 8"}, "15, 8, 4"),
        ("sort_words", {"x": "pear, Apple, fig"}, "Apple, fig, pear"),
        ("nth", {"x": "4, 8, 15", "k": "third"}, "15"),
        ("reverse_list", {"x": "a, b, c"}, "c, b, a"),
        ("unique", {"x": "3, 1, 3, 2, 1"}, "3, 1, 2"),
        ("average", {"x": "1, 2, 2"}, "1.6667"),
        ("atomic_number", {"s": "gold"}, "79"),
    ],
)
def test_answer_is_exact(operation: str, arguments: dict[str, str], answer: str) -> None:
    assert exact.RUN[operation](arguments) == answer


def test_number_names_are_read_back() -> None:
    for value in [*range(0, 1200), 9_999, 10_000, 20_016, 100_100, 999_999, 1_000_001, 123_456_789]:
        assert exact.unspell(exact.spell(value)) == value


def test_rounding_is_half_away_from_zero() -> None:
    assert exact.show(exact.Fraction(-1, 3)) == "-0.3333"
    assert exact.show(exact.Fraction(-2, 3)) == "-0.6667"
    assert exact.show(exact.Fraction(1, 30000)) == "0"


def test_bank_rules_and_facts_name_the_same_operations() -> None:
    assert set(BANK.operations) == set(RULES) | set(JOINS) == set(exact.RUN)
    assert {operation: set(names) for operation, names in BANK.subjects.items()} == {
        operation: set(values) for operation, values in facts.VALUES.items()
    }


def test_every_pair_of_units_of_a_group_converts() -> None:
    for group in BANK.units:
        for source in group:
            for target in group:
                if source != target:
                    exact.convert(exact.Fraction(10), source, target)


@pytest.mark.parametrize("split", ["train", "wide", "valid"])
def test_no_clause_of_the_test_is_in_the_training_set(split: str) -> None:
    assert not wordings.clauses(BANK, "test") & wordings.clauses(BANK, split)


def test_nothing_is_both_learned_from_and_validated_on() -> None:
    for operation in BANK.operations.values():
        for form in wordings.FORMS:
            assert not set(operation.templates("wide", form)) & set(operation.templates("valid", form))
    assert sum(len(operation.templates("valid", form)) for operation in BANK.operations.values() for form in wordings.FORMS) > 150


def test_no_frame_of_the_test_is_in_the_training_set() -> None:
    def frames(split: str) -> set[str]:
        return {
            text.lower() for (of, _), texts in BANK.frames.items() if of == split for frame in texts for text in wordings.expansions(frame)
        }

    assert not frames("test") & (frames("wide") | frames("valid"))


def test_every_operation_has_clauses_for_every_use_in_both_splits() -> None:
    for operation in BANK.operations.values():
        for split in wordings.SPLITS:
            for form in ("noun", "verb"):
                templates = operation.templates(split, form)
                assert templates, (operation.id, split, form)
            takes_input = operation.id not in RULES or RULES[operation.id].accepts
            if takes_input:
                assert any("l" not in wordings.slots(text) for text in operation.templates(split, "verb")), (operation.id, split)


def test_same_seed_gives_the_same_questions() -> None:
    assert [heldout.record(q, "x") for q in heldout.questions("test", 3, 20)] == [
        heldout.record(q, "x") for q in heldout.questions("test", 3, 20)
    ]


def test_held_out_questions_need_several_skills() -> None:
    questions = list(heldout.questions("test", 1, 300))
    several = sum(len({step.skill for step in question.steps}) > 1 for question in questions)
    assert several >= 0.7 * len(questions)
    assert all(1 <= len(question.steps) <= plan.STEPS_MAX for question in questions)


def test_plan_text_is_read_back() -> None:
    for split in (*wordings.SPLITS, *wordings.CONDUCTOR_SPLITS):
        generator = Generator(split, 5, noise=0.3 if split == "wide" else 0.0)
        for _ in range(300):
            steps = list(generator.draw().steps)
            assert plan.parse(plan.render(steps)) == plan.lists_of(steps)


def test_subtasks_copy_the_numbers_of_the_question() -> None:
    generator = Generator("test", 6)
    for _ in range(300):
        question = generator.draw()
        for step in question.steps:
            own = re.sub(r"result [12](?!\d)", "", step.subtask)
            assert set(re.findall(r"\d+", own)) <= set(re.findall(r"\d+", question.text)), question


def test_only_steps_that_see_something_speak_of_results() -> None:
    generator = Generator("test", 7)
    for _ in range(300):
        for step in generator.draw().steps:
            assert ("result 1" in step.subtask and "result 2" in step.subtask) == (len(step.access) == 2)
            assert ("the result" in step.subtask) == (len(step.access) == 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model_id = [0]",
        'Parts: x.\nmodel_id = [7]\nsubtasks = ["a"]\naccess_list = [[]]',
        'Parts: x.\nmodel_id = [0, 1]\nsubtasks = ["a"]\naccess_list = [[]]',
        'Parts: x.\nmodel_id = [0]\nsubtasks = ["a"]\naccess_list = [[0]]',
        "Parts: x.\nmodel_id = [0]\nsubtasks = [1]\naccess_list = [[]]",
    ],
)
def test_malformed_plan_is_refused(text: str) -> None:
    assert plan.parse(text) is None


def test_committed_evaluation_files_are_what_the_generator_gives() -> None:
    directory = wordings.WORDINGS_PATH.parent / "eval"
    for name, split, seed, count in (("heldout", "test", 1, 300), ("seen", "train", 1, 100)):
        lines = (directory / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert lines == [heldout.record(q, f"{split}-{seed}-{i:04}") for i, q in enumerate(heldout.questions(split, seed, count), start=1)]
        assert all(set(json.loads(line)) == {"id", "question", "answer", "skills", "steps"} for line in lines)


def test_the_committed_everyday_questions_are_those_of_their_file() -> None:
    committed = (everyday.PATH.parent / "eval/everyday.jsonl").read_text(encoding="utf-8")
    assert committed == "".join(line + "\n" for line in everyday.records())
    assert len(committed.splitlines()) == 100


def test_everyday_questions_share_no_phrase_with_the_templates() -> None:
    """A phrase is five words in a row. Operands are not part of a template."""

    def phrases(text: str) -> set[tuple[str, ...]]:
        words = re.findall(r"\{|[a-z0-9']+", re.sub(r"\{[^}]*\}", "{", text.lower()))
        found = (tuple(words[start : start + 5]) for start in range(len(words) - 4))
        return {phrase for phrase in found if "{" not in phrase}

    splits = (*wordings.SPLITS, *wordings.CONDUCTOR_SPLITS)
    texts = {text for split in splits for text in wordings.clauses(BANK, split)}
    texts |= {text for frames in BANK.frames.values() for frame in frames for text in wordings.expansions(frame)}
    known = set().union(*map(phrases, texts))
    assert ("the", "day", "of", "the", "week") in known
    shared = {question.text: phrases(question.text) & known for question in everyday.load()}
    assert not any(shared.values()), {text: found for text, found in shared.items() if found}


def test_an_invalid_everyday_question_is_named(tmp_path) -> None:
    path = tmp_path / "everyday.toml"
    for step in ('{ op = "double", x = "2" }', '{ op = "spell", x = "#1" }'):
        path.write_text(f'schema = 1\n[[question]]\ntag = "a"\ntext = "Asked?"\nsteps = [{step}]\n', encoding="utf-8")
        with pytest.raises(ValueError, match="'Asked\\?': invalid step"):
            everyday.load(path)
