"""Programs as users of Hugging Face write them, for any trainer class: `Trainer`, or `ElasticTrainer` in its place.

Run by tests as the main script of a job, and alone: `hf_programs.py FOLDER NAME`. A callback waits after an update
while the file `hold-<update>` is in the folder, and writes what it sees there.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import Dataset, Sampler
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from edt_sdk.training.sampling.order import Order
from edt_sdk.transformers import ElasticTrainer

BATCH, SHARDS = 12, 4
Made = tuple[Trainer, Any]  # the trainer, and what its training returned
Program = Callable[..., Made]


class Rows(Dataset):
    """Samples as dictionaries, as tokenized data sets have them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def whole(*shape: int, below: int, seed: int = 2) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder / "out"), per_device_train_batch_size=BATCH, num_train_epochs=3, learning_rate=5e-3,
        use_cpu=True, report_to=[], logging_steps=2, disable_tqdm=True,
        dataloader_pin_memory=False, **{"save_strategy": "no", **more},
    )  # fmt: skip


# --- programs ---------------------------------------------------------------------------------------------------------


def causal_lm(trainer: type[Trainer], folder: Path, drop: float, **elastic: Any) -> Made:
    """A causal language model with padding, a warm-up and a cosine, evaluated and saved while it trains."""
    config = GPT2Config(
        vocab_size=31, n_positions=12, n_embd=16, n_layer=2, n_head=2, resid_pdrop=drop, embd_pdrop=drop,
        attn_pdrop=drop, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    lengths = (whole(50, below=8) + 3).tolist()
    rows = Rows([{"input_ids": whole(length, below=31, seed=n)} for n, length in enumerate(lengths)])

    def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        tokens = [sample["input_ids"] for sample in samples]
        inputs = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        labels = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-100)
        return {"input_ids": inputs, "attention_mask": (labels != -100).long(), "labels": labels}

    args = arguments(
        folder, lr_scheduler_type="cosine", warmup_steps=3, max_grad_norm=0.5, eval_strategy="steps", eval_steps=4,
        metric_for_best_model="loss", load_best_model_at_end=True, include_num_input_tokens_seen="non_padding",
        save_strategy="steps", save_steps=4, save_total_limit=2, eval_on_start=True,
    )  # fmt: skip
    made = trainer(
        model=model, args=args, data_collator=collate, train_dataset=rows, eval_dataset=Rows(rows.rows[:20]),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=4)], **elastic,
    )  # fmt: skip
    return made, made.train()


def lora(trainer: type[Trainer], folder: Path, drop: float, **elastic: Any) -> Made:
    """Classification: LoRA on a frozen BERT, with metrics, a loss of the user's own, and more of the evaluations."""
    from peft import LoraConfig, get_peft_model

    config = BertConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3,
        hidden_dropout_prob=drop, attention_probs_dropout_prob=drop, max_position_embeddings=12,
    )  # fmt: skip
    model = get_peft_model(
        BertForSequenceClassification(config),
        LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=8, lora_dropout=drop, target_modules=["query", "value"]),
    )
    rows = Rows(
        [{"input_ids": whole(8, below=31, seed=n), "labels": n % 3, "attention_mask": torch.ones(8)} for n in range(40)]
    )

    class Weighted(trainer):  # type: ignore[misc, valid-type]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
            outputs = model(**inputs)
            loss = torch.nn.functional.cross_entropy(outputs.logits, inputs["labels"], label_smoothing=0.1)
            return (loss, outputs) if return_outputs else loss

    def metrics(found: Any) -> dict[str, float]:
        return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}

    class OnTraining(TrainerCallback):
        def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            made.evaluate(rows, metric_key_prefix="train")

    made = Weighted(
        model=model, args=arguments(folder, eval_strategy="epoch"), train_dataset=rows,
        eval_dataset=Rows(rows.rows[::2]), compute_metrics=metrics, callbacks=[OnTraining()], **elastic,
    )  # fmt: skip
    return made, made.train()


def vision(trainer: type[Trainer], folder: Path, drop: float, **elastic: Any) -> Made:
    """A vision transformer, its optimizer and its schedule made by the script."""
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_channels=1, num_labels=3, hidden_dropout_prob=drop, attention_probs_dropout_prob=drop,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    pictures = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    rows = Rows([{"pixel_values": picture, "labels": n % 3} for n, picture in enumerate(pictures)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    made = trainer(
        model=model, args=arguments(folder, max_steps=10), train_dataset=rows, optimizers=(optimizer, schedule),
        **elastic,
    )  # fmt: skip
    return made, made.train()


def seq2seq(trainer: type[Trainer], folder: Path, drop: float, **elastic: Any) -> Made:
    """T5 with padded targets and label smoothing."""
    config = T5Config(
        vocab_size=31, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2,
        dropout_rate=drop, decoder_start_token_id=0,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({f"w{n}": n for n in range(31)}, "w1")), pad_token="w0"
    )
    lengths = zip(whole(40, below=5).tolist(), whole(40, below=5, seed=4).tolist(), strict=True)
    texts = [(whole(4 + a, below=31, seed=a), whole(2 + b, below=31, seed=b)) for a, b in lengths]
    rows = Rows([{"input_ids": source.tolist(), "labels": target.tolist()} for source, target in texts])
    args = arguments(folder, label_smoothing_factor=0.1, lr_scheduler_type="constant", save_strategy="epoch")
    made = trainer(
        model=model, args=args, train_dataset=rows, processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), **elastic,
    )  # fmt: skip
    return made, made.train()


PROGRAMS: dict[str, Program] = {each.__name__: each for each in (causal_lm, lora, vision, seq2seq)}


# --- to compare, and to hold ------------------------------------------------------------------------------------------


class InOrder(Sampler[int]):
    """The order of the engine, for the Trainer as it is."""

    def __init__(self, samples: int, seed: int) -> None:
        self.order, self.samples, self.epoch = Order(samples, (BATCH,), BATCH, seed, 100), samples, 0

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[int]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        for update in range(self.order.updates_per_epoch):
            yield from self.order.shards(epoch, update)[0].tolist()


class PlainTrainer(Trainer):
    """The Trainer as it is, with the samples in the order of the engine."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return InOrder(len(self.train_dataset), self.args.seed)  # type: ignore[arg-type]


def begin(name: str, folder: Path, trainer: type[Trainer], *, drop: float = 0.0, **elastic: Any) -> Made:
    torch.set_num_threads(1)
    torch.manual_seed(11)
    return PROGRAMS[name](trainer, folder, drop, **elastic)


def hash_of(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def main(folder: Path, name: str) -> None:
    """Run a program, and wait after an update while the file `hold-<number>` is there."""

    class Hold(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.is_world_process_zero:
                with (folder / "seen").open("a") as seen:
                    seen.write(f"{state.global_step} {state.epoch:.4f}\n")
            wait(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            wait(99)

    def wait(place: Any) -> None:
        (folder / f"at-{os.getpid()}").write_text(str(place))
        deadline = time.monotonic() + 180
        while (folder / f"hold-{place}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    class Held(ElasticTrainer):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self.add_callback(Hold())

    made, result = begin(name, folder, Held, drop=0.1, global_batch_size=BATCH, shards=SHARDS)
    history = [
        {name: value for name, value in line.items() if "runtime" not in name and "per_second" not in name}
        for line in made.state.log_history
    ]
    score = made.evaluate(made.train_dataset)["eval_loss"]
    made.save_model(str(folder / "final"))
    rest = {"history": history, "best": made.state.best_metric, "loss": result.training_loss, "score": score}
    (folder / f"end-{os.getpid()}").write_text(json.dumps({"hash": hash_of(made.model), **rest}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
