"""The models that reinforcement learning trains: how they read a question, write completions, and what they think of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from podium_training import plan, sft
from podium_training.grpo_settings import GrpoSettings
from podium_training.model import Cache, Conductor


@dataclass(frozen=True)
class Scores:
    """The logarithmic probability of each token of some completions, the entropy among the workers that it could name, and whether it
    exists. One row for each completion, padded."""

    log_probabilities: Tensor
    entropies: Tensor
    exists: Tensor


class Policy(Protocol):
    """A model that writes plans."""

    needs_equal_prompts: bool
    """Whether the prompts of a batch must have one length in tokens."""

    def prompt(self, question: str) -> list[int]:
        """The tokens of the prompt for a question."""

    def sample(self, prompts: list[list[int]], temperature: float, tokens_max: int) -> list[list[int]]:
        """A completion of each prompt, with its end token if it has ended; temperature 0 takes the most likely tokens."""

    def scores(self, prompts: list[list[int]], completions: list[list[int]], temperature: float) -> Scores:
        """The scores of completions, with gradients."""

    def text(self, completion: list[int]) -> str:
        """The text of a completion, without its end token."""

    def names_worker(self, completion: list[int]) -> list[bool]:
        """Whether each token chooses a worker."""

    def module(self) -> nn.Module:
        """The parameters that are trained are those that require gradients."""

    def export(self, folder: Path) -> list[Path]:
        """Writes the trained model, and returns the files or folders."""


def spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Where the numbers of workers are, in characters. The pattern's first group holds them."""
    numbers = re.compile(r"\d+")
    return [(m.start(1) + n.start(), m.start(1) + n.end()) for m in pattern.finditer(text) for n in numbers.finditer(m.group(1))]


def overlapping(pieces: list[str], wanted: list[tuple[int, int]]) -> list[bool]:
    """Whether each of the pieces of a text touches one of the wanted spans."""
    found, at = [], 0
    for piece in pieces:
        found.append(any(begin < at + len(piece) and at < end for begin, end in wanted))
        at += len(piece)
    return found


class NanoPolicy:
    """This project's small model."""

    needs_equal_prompts = True
    # nano decides in its line of reasoning, right after the skill; the list repeats the numbers.
    _WORKER = re.compile(r'(?:: |; )"[^"]*" [a-z]+ (\d+)')

    def __init__(self, model: Conductor, tokenizer: Any, workers: list[str]) -> None:
        self.model, self.tokenizer, self.workers = model, tokenizer, workers
        self.end = tokenizer.token_to_id(plan.END)
        self.digits = torch.tensor([tokenizer.token_to_id(str(digit)) for digit in range(min(len(workers), 10))])

    def prompt(self, question: str) -> list[int]:
        return self.tokenizer.encode(plan.prompt(question)).ids

    @torch.no_grad()
    def sample(self, prompts: list[list[int]], temperature: float, tokens_max: int) -> list[list[int]]:
        self.model.eval()
        cache, inputs = Cache(), torch.tensor(prompts)
        written: list[list[int]] = [[] for _ in prompts]
        rows = list(range(len(prompts)))
        for _ in range(tokens_max):
            logits = self.model.logits(self.model(inputs, cache)[:, -1])
            chosen = logits.argmax(-1) if temperature == 0 else torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0]
            for row, token in zip(rows, chosen.tolist(), strict=True):
                written[row].append(token)
            is_open = (chosen != self.end).nonzero()[:, 0]
            if len(is_open) == 0:
                break
            # A few long texts would otherwise cost as much as the whole batch.
            if len(is_open) < len(rows):
                cache.keep(is_open)
                rows, chosen = [rows[row] for row in is_open.tolist()], chosen[is_open]
            inputs = chosen[:, None]
        return written

    def scores(self, prompts: list[list[int]], completions: list[list[int]], temperature: float) -> Scores:
        inputs, targets = sft.collate([sft.Example(p, c) for p, c in zip(prompts, completions, strict=True)])
        exists = targets != sft.IGNORED
        logits = self.model.logits(self.model(inputs)[exists]) / temperature
        return _padded(exists, *_scores(logits, targets[exists], self.digits))

    def text(self, completion: list[int]) -> str:
        return self.tokenizer.decode(completion, skip_special_tokens=False).split(plan.END)[0]

    def names_worker(self, completion: list[int]) -> list[bool]:
        pieces = [self.tokenizer.decode([token], skip_special_tokens=False) for token in completion]
        return overlapping(pieces, spans(self._WORKER, "".join(pieces)))

    def module(self) -> nn.Module:
        return self.model

    def export(self, folder: Path) -> list[Path]:
        from podium_training import export

        bundle = folder / "bundle"
        bundle.mkdir(parents=True, exist_ok=True)
        export.export(self.model, self.tokenizer, bundle / "nano.gguf", name="podium-nano-rl")
        export.write_manifest(bundle, self.workers)
        sft.save(folder / "checkpoint", self.model, self.tokenizer)
        return [bundle, folder / "checkpoint"]


def _scores(logits: Tensor, targets: Tensor, digits: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithmic probabilities of the targets, and the entropy among the digits of workers. A bonus on the entropy among all tokens
    would make the model write anything but a worker."""
    among_workers = logits[:, digits].log_softmax(-1)
    chosen = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return chosen, -(among_workers.exp() * among_workers).sum(-1)


def _padded(exists: Tensor, chosen: Tensor, entropies: Tensor) -> Scores:
    """Moves the scores of the existing positions to the beginning of their rows."""
    lengths = exists.sum(-1)
    width = int(lengths.max())
    kept = torch.arange(width) < lengths.cpu()[:, None]
    kept = kept.to(chosen.device)
    shape = (len(lengths), width)
    return Scores(
        chosen.new_zeros(shape).masked_scatter(kept, chosen),
        entropies.new_zeros(shape).masked_scatter(kept, entropies),
        kept,
    )


class TransformersPolicy:
    """A causal model of the transformers library, with all weights or low-rank adapters trained."""

    needs_equal_prompts = False
    _WORKER = re.compile(r"model_id\s*[=:]\s*\[([^\]]*)\]")

    def __init__(self, model: Any, tokenizer: Any, prompt: str, workers: int) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.template, self.workers = prompt, workers
        self.end = tokenizer.eos_token_id
        self.digits = torch.tensor(tokenizer.convert_tokens_to_ids([str(digit) for digit in range(min(workers, 10))]))
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end

    def prompt(self, question: str) -> list[int]:
        text = self.template.replace("{workers}", str(self.workers)).replace("{question}", question)
        asked = self.tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False)
        return self.tokenizer(asked, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def sample(self, prompts: list[list[int]], temperature: float, tokens_max: int) -> list[list[int]]:
        self.model.eval()
        width = max(len(prompt) for prompt in prompts)
        inputs = torch.tensor([[self.pad] * (width - len(prompt)) + prompt for prompt in prompts], device=self.model.device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=self.model.device)
        # Plain sampling: a model's own settings, such as top-p, would make the probabilities below wrong.
        chosen: dict[str, Any] = {"do_sample": False} if temperature == 0 else {"do_sample": True, "temperature": temperature}
        written = self.model.generate(
            input_ids=inputs, attention_mask=mask, max_new_tokens=tokens_max, top_k=0, top_p=1.0, repetition_penalty=1.0,
            pad_token_id=self.pad, eos_token_id=self.end, **chosen,
        )  # fmt: skip
        return [self._until_end(row) for row in written[:, width:].tolist()]

    def _until_end(self, tokens: list[int]) -> list[int]:
        return tokens[: tokens.index(self.end) + 1] if self.end in tokens else tokens

    def scores(self, prompts: list[list[int]], completions: list[list[int]], temperature: float) -> Scores:
        self.model.train()
        inputs, targets = sft.collate([sft.Example(p, c) for p, c in zip(prompts, completions, strict=True)])
        inputs, targets = inputs.to(self.model.device), targets.to(self.model.device)
        exists = targets != sft.IGNORED
        lengths = torch.tensor([len(p) + len(c) - 1 for p, c in zip(prompts, completions, strict=True)], device=inputs.device)
        mask = (torch.arange(inputs.shape[1], device=inputs.device) < lengths[:, None]).long()
        logits = self.model(input_ids=inputs, attention_mask=mask).logits[exists].float() / temperature
        return _padded(exists, *_scores(logits, targets[exists], self.digits.to(logits.device)))

    def text(self, completion: list[int]) -> str:
        return self.tokenizer.decode([token for token in completion if token != self.end])

    def names_worker(self, completion: list[int]) -> list[bool]:
        pieces = [self.tokenizer.decode([token]) for token in completion]
        return overlapping(pieces, spans(self._WORKER, "".join(pieces)))

    def module(self) -> nn.Module:
        return self.model

    def export(self, folder: Path) -> list[Path]:
        """A folder for llama.cpp's `convert_hf_to_gguf.py`; adapters are merged into the weights."""
        merged = self.model.merge_and_unload() if hasattr(self.model, "merge_and_unload") else self.model
        merged.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return [folder]


def load(settings: GrpoSettings) -> Policy:
    """The policy of the settings, at its start."""
    if settings.model.kind == "nano":
        from podium_training import nano_gguf

        return NanoPolicy(*nano_gguf.load(settings.path(settings.model.start)), settings.worker_ids())
    return _transformers(settings)


def _transformers(settings: GrpoSettings) -> TransformersPolicy:
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise SystemExit("models of the transformers library need the dependency group llm: uv sync --group train --group llm") from error
    local = settings.path(settings.model.start)
    start = str(local) if local.exists() else settings.model.start
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(start, dtype=getattr(torch, settings.model.dtype)).to(device)
    tokenizer = AutoTokenizer.from_pretrained(start)
    if settings.model.lora_rank:
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(
            r=settings.model.lora_rank, lora_alpha=settings.model.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapters)
    if settings.model.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    prompt = settings.path(settings.model.prompt).read_text(encoding="utf-8").strip()
    return TransformersPolicy(model, tokenizer, prompt, settings.positions())
