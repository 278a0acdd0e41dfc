"""Command line: `podium-training COMMAND`. Only the commands that train or run a model import torch."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path

from podium_training.loaders import READERS as QUESTION_KINDS
from podium_training.settings import Settings
from podium_training.wordings import CONDUCTOR_SPLITS, SPLITS


def _generate_eval(arguments: argparse.Namespace) -> None:
    from podium_training import heldout

    for index, question in enumerate(heldout.questions(arguments.split, arguments.seed, arguments.n), start=1):
        print(heldout.record(question, f"{arguments.split}-{arguments.seed}-{index:04}"))


def _everyday(_arguments: argparse.Namespace) -> None:
    from podium_training import everyday

    for line in everyday.records():
        print(line)


def _generate_text(arguments: argparse.Namespace) -> None:
    from podium_training import plan
    from podium_training.questions import Generator

    generator = Generator(arguments.split, arguments.seed, noise=arguments.noise)
    for _ in range(arguments.n):
        question = generator.draw()
        print(plan.prompt(question.text) + plan.render(list(question.steps)), end="\n\n")


def _train(arguments: argparse.Namespace) -> None:
    import torch

    from podium_training import sft

    torch.set_num_threads(arguments.threads)
    given = {field.name: getattr(arguments, field.name) for field in fields(Settings)}
    shape = {name: getattr(arguments, name) for name in ("width", "layers", "heads", "hidden")}
    try:
        training = sft.Training(arguments.out, Settings(**given), shape)
    except sft.OtherRun as error:
        sys.exit(str(error))
    training.run(arguments.pools_a_checkpoint)


def _export(arguments: argparse.Namespace) -> None:
    from podium_training import export, sft

    model, tokenizer = sft.load(arguments.checkpoint)
    path = arguments.bundle / "nano.gguf"
    export.export(model, tokenizer, path, name="podium-nano", kind=arguments.kind)
    export.write_checksum(arguments.bundle)
    print(f"{path}: {path.stat().st_size} bytes, sha256 {export.sha256(path)}")


def _replace(arguments: argparse.Namespace) -> None:
    import torch

    from podium_training import gate

    torch.set_num_threads(arguments.threads)
    verdict = gate.replace(arguments.candidate, arguments.bundle, arguments.n, arguments.points_lost)
    print(verdict.sentence())
    if not verdict.passes:
        sys.exit(1)


def _plot(arguments: argparse.Namespace) -> None:
    from podium_training import curves

    if unknown := [name for name in arguments.figures.split(",") if name not in curves.FIGURES]:
        sys.exit(f"--figures: unknown figure {unknown[0]}; there are {', '.join(curves.FIGURES)}")
    runs = {name: curves.read(Path(path)) for name, path in (given.split("=", 1) for given in arguments.runs)}
    arguments.out.write_text(curves.svg(runs, arguments.figures.split(","), arguments.note), encoding="utf-8")


def _convert_encoder(arguments: argparse.Namespace) -> None:
    from podium_training import encoder

    encoder.convert(arguments.folder, arguments.out)
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


def _outcomes(arguments: argparse.Namespace) -> None:
    from podium_training import recorded

    print(f"{recorded.convert(arguments.format, arguments.files, arguments.out)} outcomes")


def _check_export(arguments: argparse.Namespace) -> None:
    from podium_training import llama_check, sft

    model, tokenizer = sft.load(arguments.checkpoint)
    result = llama_check.compare(arguments.bundle / "nano.gguf", model, tokenizer, arguments.n)
    print(json.dumps(result))
    if result["same_text"] < 0.95 * arguments.n:
        sys.exit("the exported file does not write what the checkpoint writes")


def _evaluate(arguments: argparse.Namespace) -> None:
    import torch

    from podium_training import heldout, sft
    from podium_training.evaluate import evaluate
    from podium_training.tokenizer import END

    torch.set_num_threads(arguments.threads)
    model, tokenizer = sft.load(arguments.checkpoint)
    end = tokenizer.token_to_id(END)

    def complete(prompt: str) -> str:
        return tokenizer.decode(model.complete(tokenizer.encode(prompt).ids, end, arguments.tokens_max), skip_special_tokens=False)

    score = evaluate(complete, heldout.questions(arguments.split, arguments.seed, arguments.n))
    for question, wanted, got in score.misses[: arguments.misses]:
        print(f"--- {question}\nwanted {wanted}\ngot    {got}", file=sys.stderr)
    print(json.dumps({"split": arguments.split, **score.report()}))


def _grpo(arguments: argparse.Namespace) -> None:
    from podium_training import grpo_settings, rollouts

    try:
        settings = grpo_settings.load(arguments.config)
        if arguments.dry_run:
            from podium_training.grpo_dry_run import DryRunFailed, dry_run

            try:
                print(json.dumps(dry_run(settings), indent=1))
            except DryRunFailed as error:
                sys.exit(str(error))
            return
        if arguments.out is None:
            sys.exit("--out names the folder of the run; only --dry-run needs none")
        from podium_training import grpo, policy

        with rollouts.Rollouts(settings.rollout_command()) as process:
            try:
                grpo.Trainer(settings, policy.load(settings), process, arguments.out).run()
            except grpo.OtherRun as error:
                sys.exit(str(error))
    except (grpo_settings.BadSettings, rollouts.RolloutsFailed) as error:
        sys.exit(str(error))


def _questions(arguments: argparse.Namespace) -> None:
    from podium_training import loaders

    try:
        if arguments.recorded is None:
            for item in loaders.load(arguments.kind, arguments.file, arguments.judge):
                print(json.dumps(item, ensure_ascii=False))
            return
        if arguments.kind != "routerbench" or arguments.pool is None:
            sys.exit("--recorded needs the kind routerbench and --pool")
        models: dict[str, None] = {}
        with arguments.recorded.open("w", encoding="utf-8") as recorded:
            for item, answers in loaders.routerbench(arguments.file):
                print(json.dumps(item, ensure_ascii=False))
                for answer in answers:
                    models[answer["model"]] = None
                    print(json.dumps(answer, ensure_ascii=False), file=recorded)
        arguments.pool.write_text(loaders.recorded_pool(list(models)), encoding="utf-8")
    except (loaders.BadFile, OSError) as error:
        sys.exit(str(error))


def _bench_rollout(arguments: argparse.Namespace) -> None:
    from podium_training import rollout_bench

    print(json.dumps(rollout_bench.measure(arguments.command, arguments.n, arguments.steps)))


def _draws(parser: argparse.ArgumentParser, n: int, split: str, seed: int) -> None:
    parser.add_argument("--n", type=int, default=n, help="how many questions")
    parser.add_argument("--split", choices=(*SPLITS, *CONDUCTOR_SPLITS), default=split, help="whose wordings")
    parser.add_argument("--seed", type=int, default=seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="podium-training", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("generate-eval", help="print questions with exact answers as JSON lines")
    _draws(command, 300, "test", 1)
    command.set_defaults(run=_generate_eval)

    command = commands.add_parser("generate-everyday", help="print the questions in everyday words as JSON lines")
    command.set_defaults(run=_everyday)

    command = commands.add_parser("generate-text", help="print training texts, to be read by a person")
    _draws(command, 20, "train", 1)
    command.add_argument("--noise", type=float, default=0.0)
    command.set_defaults(run=_generate_text)

    command = commands.add_parser("train", help="train a conductor from scratch")
    command.add_argument("--out", type=Path, required=True, help="directory of the checkpoint")
    command.add_argument("--threads", type=int, default=2)
    command.add_argument("--pools-a-checkpoint", type=int, default=4, help="pools of 25 steps between checkpoints")
    for name, value in (("width", 192), ("layers", 5), ("heads", 6), ("hidden", 512)):
        command.add_argument(f"--{name}", type=int, default=value)
    _settings(command)
    command.set_defaults(run=_train)

    command = commands.add_parser("export", help="write a checkpoint as GGUF into a bundle and put its checksum into conductor.toml")
    command.add_argument("--checkpoint", type=Path, required=True)
    command.add_argument("--bundle", type=Path, required=True)
    command.add_argument("--kind", choices=("f16", "q8_0"), default="f16")
    command.set_defaults(run=_export)

    command = commands.add_parser("replace", help="replace a bundle's weights if new ones plan about as well")
    command.add_argument("--candidate", type=Path, required=True, help="the bundle with the new weights")
    command.add_argument("--bundle", type=Path, required=True, help="the bundle whose weights are replaced")
    command.add_argument("--n", type=int, default=300, help="how many questions both plan")
    command.add_argument("--points-lost", type=float, default=2.0, help="how many points of right plans the new weights may be worse")
    command.add_argument("--threads", type=int, default=2)
    command.set_defaults(run=_replace)

    command = commands.add_parser("plot", help="draw the learning curves of runs of grpo as an SVG image")
    command.add_argument("runs", nargs="+", type=_run, metavar="NAME=FILE", help="a name and the metrics.jsonl of a run")
    command.add_argument("--figures", default="reward,right,routing,plans,steps,usd_per_thousand", help="which, separated by commas")
    command.add_argument("--note", default="simulated workers; means over ten iterations", help="a line below the curves")
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=_plot)

    command = commands.add_parser("convert-encoder", help="write a BERT sentence encoder from Hugging Face files as GGUF")
    command.add_argument("--folder", type=Path, required=True, help="with config.json, model.safetensors and the vocabulary")
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=_convert_encoder)

    command = commands.add_parser("outcomes", help="convert recorded outcomes of real models for `podium head`")
    command.add_argument("format", choices=("llmrouter", "routerbench"))
    command.add_argument("files", type=Path, nargs="+")
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=_outcomes)

    command = commands.add_parser("check-export", help="hold the exported file under llama.cpp against its checkpoint")
    command.add_argument("--checkpoint", type=Path, required=True)
    command.add_argument("--bundle", type=Path, required=True)
    command.add_argument("--n", type=int, default=40)
    command.set_defaults(run=_check_export)

    command = commands.add_parser("evaluate", help="score a checkpoint's plans against the right ones")
    command.add_argument("--checkpoint", type=Path, required=True)
    _draws(command, 300, "test", 1)
    command.add_argument("--threads", type=int, default=2)
    command.add_argument("--tokens-max", type=int, default=400)
    command.add_argument("--misses", type=int, default=0, help="how many wrong plans to show")
    command.set_defaults(run=_evaluate)

    command = commands.add_parser("grpo", help="train a conductor by reinforcement, from the rewards of podium rollout")
    command.add_argument("--config", type=Path, required=True, help="the settings, such as configs/grpo-nano.toml")
    command.add_argument("--out", type=Path, help="folder of the run: checkpoint, metrics.jsonl, export")
    command.add_argument("--dry-run", action="store_true", help="check settings, pool and rewards without a model")
    command.set_defaults(run=_grpo)

    command = commands.add_parser("questions", help="convert a public question file that you have for podium eval and podium rollout")
    command.add_argument("kind", choices=QUESTION_KINDS)
    command.add_argument("file", type=Path)
    command.add_argument("--judge", help="the worker that compares free texts; without it they are compared exactly")
    command.add_argument("--recorded", type=Path, help="routerbench: write the models' answers here, for vendor-sim --recorded")
    command.add_argument("--pool", type=Path, help="routerbench: write a pool of these models here")
    command.set_defaults(run=_questions)

    command = commands.add_parser("bench-rollout", help="measure podium rollout over the demo's simulated workers")
    command.add_argument("--n", type=int, default=2000, help="how many rollouts")
    command.add_argument("--steps", type=int, default=1, help="steps of each plan, 1 to 3")
    command.add_argument("command", nargs="+", metavar="COMMAND", help="such as: -- podium rollout --pool demo")
    command.set_defaults(run=_bench_rollout)
    return parser


def _run(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return text


def _settings(command: argparse.ArgumentParser) -> None:
    for field in fields(Settings):
        command.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)


def main() -> None:
    """Runs one command."""
    arguments = _parser().parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
