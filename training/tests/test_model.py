"""The model, its training and its export, on a tiny model. Needs the dependency group "train"; skipped without it."""

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
gguf = pytest.importorskip("gguf")

from podium_training import copying, export, gate, plan, sft, tokenizer  # noqa: E402
from podium_training.evaluate import evaluate  # noqa: E402
from podium_training.model import Cache, Conductor, Shape  # noqa: E402
from podium_training.questions import Generator  # noqa: E402
from podium_training.settings import Settings  # noqa: E402

TINY = {"width": 128, "layers": 2, "heads": 4, "hidden": 96}


@pytest.fixture(scope="module")
def bpe() -> tokenizer.Tokenizer:
    return tokenizer.train(sft.corpus(1, 200), 600)


@pytest.fixture
def model() -> Conductor:
    torch.manual_seed(0)
    return Conductor(Shape(vocabulary=600, **TINY)).eval()


def test_text_survives_the_tokenizer(bpe) -> None:
    for text in ('model_id = [2, 0]\nsubtasks = ["naïve \\" ☃"]', "  two  spaces\n\n", "2024-03-03"):
        assert bpe.decode(bpe.encode(text).ids, skip_special_tokens=False) == text


def test_digits_are_single_tokens(bpe) -> None:
    assert [bpe.id_to_token(token) for token in bpe.encode("2024").ids] == ["2", "0", "2", "4"]


def test_one_token_at_a_time_gives_what_all_at_once_gives(model) -> None:
    tokens = torch.randint(3, 600, (1, 12))
    with torch.inference_mode():
        whole, cache = model(tokens), Cache()
        parts = [model(tokens[:, :5], cache), *(model(tokens[:, index : index + 1], cache) for index in range(5, 12))]
    assert torch.allclose(whole, torch.cat(parts, dim=1), atol=1e-4)


def test_a_long_text_and_rows_that_are_kept_give_the_same_states(model) -> None:
    tokens = torch.randint(3, 600, (3, 150))
    with torch.inference_mode():
        whole, cache = model(tokens), Cache()
        model(tokens[:, :5], cache)
        for index in range(5, 100):
            model(tokens[:, index : index + 1], cache)
        cache.keep(torch.tensor([0, 2]))
        parts = [model(tokens[[0, 2], index : index + 1], cache) for index in range(100, 150)]
    assert cache.length == 150
    assert torch.allclose(whole[[0, 2], 100:], torch.cat(parts, dim=1), atol=1e-4)


def test_nothing_looks_ahead(model) -> None:
    tokens = torch.randint(3, 600, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 600
    with torch.inference_mode():
        assert torch.allclose(model(tokens)[:, :5], model(changed)[:, :5], atol=1e-5)


def test_prepared_heads_copy_before_any_training() -> None:
    torch.manual_seed(0)
    model = Conductor(Shape(vocabulary=600)).eval()
    tokens = torch.randint(3, 600, (16, 24))
    twice = torch.cat((tokens, tokens), dim=1)

    def copied() -> float:
        with torch.inference_mode():
            written = model.logits(model(twice)[:, 24:-1]).argmax(dim=-1)
        return (written == tokens[:, 1:]).float().mean().item()

    assert copied() < 0.1
    copying.prepare(model, 1)
    assert copied() > 0.5


def test_only_the_completion_is_learned(bpe) -> None:
    source = sft.Source(bpe, Settings(vocabulary=600, batch=2))
    for inputs, targets in source.pool(copies=0.0)[:5]:
        for row, wanted in zip(inputs, targets, strict=True):
            learned = wanted[wanted != sft.IGNORED].tolist()
            text = bpe.decode(learned, skip_special_tokens=False)
            assert text.startswith("Parts: ") and text.endswith(plan.END)
            first = int((wanted != sft.IGNORED).nonzero()[0])
            assert bpe.decode(row[: first + 1].tolist(), skip_special_tokens=False).endswith("assistant\n")


def test_stopped_training_goes_on_as_if_nothing_had_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(steps=50, batch=2, vocabulary=600, warm_up=5, decay=10, copies=0.1)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    sft.Training(whole, settings, TINY).run(1)

    class Stopped(Exception):
        pass

    def stop(training: sft.Training, _loss: float) -> None:
        if training.step == 50:
            raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(sft.Training, "_log", stop)
        sft.Training(halves, settings, TINY).run(1)
    resumed = sft.Training(halves, settings, TINY)
    assert resumed.step == 25
    resumed.run(1)
    first, second = (torch.load(directory / "weights.pt", weights_only=True) for directory in (whole, halves))
    assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)


def test_a_checkpoint_of_another_run_is_not_gone_on_with(tmp_path: Path) -> None:
    settings = Settings(steps=25, batch=2, vocabulary=600, warm_up=5, decay=10, copies=0.1)
    sft.Training(tmp_path, settings, TINY).run(1)
    assert sft.Training(tmp_path, settings, TINY).step == 25
    with pytest.raises(sft.OtherRun, match="remove it"):
        sft.Training(tmp_path, replace(settings, seed=2), TINY)


def test_training_lowers_the_loss(bpe, model) -> None:
    settings = Settings(vocabulary=600, batch=8, steps=60, warm_up=10, decay=20, copies=0.0)
    source, steppers = sft.Source(bpe, settings), sft.optimizers(model, settings)
    inputs, targets = source.pool(copies=0.0)[0]
    before = sft.loss_of(model, inputs, targets).item()
    for _ in range(30):
        sft.loss_of(model, inputs, targets).backward()
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
    assert sft.loss_of(model, inputs, targets).item() < before / 2


def test_exported_file_holds_the_model(bpe, model, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    export.export(model, bpe, path, name="tiny")
    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    state = model.state_dict()
    assert {export.gguf_name(name) for name in state} == set(tensors)
    for name, parameter in state.items():
        stored = torch.tensor(tensors[export.gguf_name(name)].data.astype("float32"))
        assert torch.allclose(stored, parameter, atol=1e-3)
    assert reader.fields["general.architecture"].contents() == "qwen2"
    assert reader.fields["tokenizer.ggml.pre"].contents() == "qwen2"
    assert reader.fields["tokenizer.ggml.eos_token_id"].contents() == bpe.token_to_id(plan.END)
    assert reader.fields["tokenizer.ggml.tokens"].contents() == [bpe.id_to_token(index) for index in range(600)]


def test_checksum_goes_into_the_manifest_and_nothing_else_changes(tmp_path: Path) -> None:
    (tmp_path / "w.gguf").write_bytes(b"weights")
    manifest = tmp_path / "conductor.toml"
    head = '[head]\nfile = "h.safetensors"\nsha256 = "1"\n'
    manifest.write_text(f'# kept\n[weights]\nfile = "w.gguf"\nsha256 = ""\n{head}[prompt]\n', encoding="utf-8")
    export.write_checksum(tmp_path)
    digest = export.sha256(tmp_path / "w.gguf")
    assert manifest.read_text(encoding="utf-8") == f'# kept\n[weights]\nfile = "w.gguf"\nsha256 = "{digest}"\n{head}[prompt]\n'


def test_score_counts_each_part_of_a_plan() -> None:
    questions = [Generator("test", 1).draw() for _ in range(1)] * 3
    right = plan.render(list(questions[0].steps))
    answers = iter([right, right.replace("model_id = [", "model_id = [6, ", 1), "no plan"])
    report = evaluate(lambda _prompt: next(answers), questions).report()
    assert report["right"] == pytest.approx(1 / 3, abs=1e-4)
    assert report["parsed"] == pytest.approx(1 / 3, abs=1e-4)


def test_worse_weights_do_not_replace_those_of_a_bundle(tmp_path: Path, model, bpe) -> None:
    shipped = Path(__file__).parents[2] / "models/nano"
    bundle, candidate = tmp_path / "bundle", tmp_path / "candidate"
    for folder in (bundle, candidate):
        folder.mkdir()
        for name in ("nano.gguf", "conductor.toml"):
            (folder / name).write_bytes((shipped / name).read_bytes())
    before = export.sha256(bundle / "nano.gguf")
    export.export(model, bpe, candidate / "nano.gguf", name="untrained")
    export.write_checksum(candidate)
    assert before not in (candidate / "conductor.toml").read_text(encoding="utf-8")
    refused = gate.replace(candidate, bundle, 6, points_lost=2.0)
    assert (refused.passes, refused.candidate) == (False, 0) and refused.present >= 1
    assert "kept" in refused.sentence() and export.sha256(bundle / "nano.gguf") == before
    # The other way round, the trained weights replace the untrained ones.
    accepted = gate.replace(bundle, candidate, 6, points_lost=0.0)
    assert accepted.passes and export.sha256(candidate / "nano.gguf") == before
    assert before in (candidate / "conductor.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("candidate", "passes"), [(196, True), (195, False), (210, True)])
def test_new_weights_may_lose_few_points(candidate: int, passes: bool) -> None:
    assert gate.Verdict(questions=200, candidate=candidate, present=200, points_lost=2.0).passes is passes
