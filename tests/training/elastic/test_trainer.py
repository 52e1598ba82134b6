"""ElasticTrainer outside a job: checkpoints, callbacks, what is called after the training, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edt_sdk.schemas.errors import EdtError

transformers = pytest.importorskip("transformers")

from edt_sdk.transformers import ElasticSeq2SeqTrainer, ElasticTrainer  # noqa: E402
from tests.training.elastic.hf_programs import PlainTrainer, Rows, hash_of  # noqa: E402


class Net(nn.Module):
    """As people give networks of their own to a Trainer: a dictionary with a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.body(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture(scope="module")
def rows() -> Rows:
    numbers = torch.randn(41, 6, generator=torch.Generator().manual_seed(1))
    return Rows([{"x": x, "labels": n % 3} for n, x in enumerate(numbers)])


def arguments(folder: Path, **more: Any) -> Any:
    settings = {
        "num_train_epochs": 3, "learning_rate": 0.05, "use_cpu": True, "report_to": [], "disable_tqdm": True,
        "per_device_train_batch_size": 5, "gradient_accumulation_steps": 2, "save_strategy": "no",
        "logging_strategy": "epoch", "dataloader_pin_memory": False, **more,
    }  # fmt: skip
    return transformers.TrainingArguments(output_dir=str(folder), **settings)


class Heard(transformers.TrainerCallback):
    """Notes each event with the step that callbacks see."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_") or name in ("on_substep_end", "on_init_end"):
            return super().__getattribute__(name)
        return lambda args, state, control, **more: self.events.append((name, state.global_step, state.epoch))


def test_callbacks_hear_what_they_hear_with_the_trainer(rows: Rows, tmp_path: Path) -> None:
    heard = []
    for kind in (PlainTrainer, ElasticTrainer):
        callback = Heard()
        # The one sample that is left over belongs to the last update here, and is one of its own there.
        args = arguments(
            tmp_path / kind.__name__, per_device_train_batch_size=10, gradient_accumulation_steps=1,
            eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=3,
        )  # fmt: skip
        trainer = kind(
            model=Net(), args=args, train_dataset=Rows(rows.rows[:40]), eval_dataset=rows, callbacks=[callback]
        )
        trainer.train()
        heard.append(callback.events)
    assert heard[0] == heard[1]
    assert {event for event, *_ in heard[1]} >= {"on_train_begin", "on_step_end", "on_evaluate", "on_save", "on_log"}


@pytest.mark.parametrize(("samples", "shards"), [(17, 8), (17, 2), (16, 8), (19, 4)])
def test_each_sample_is_trained_once_an_epoch(samples: int, shards: int, tmp_path: Path) -> None:
    seen: list[int] = []

    class Counting(Net):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            seen.extend(x[:, 0].int().tolist())
            return super().forward(x, labels)

    rows = Rows([{"x": torch.full((6,), float(n)), "labels": n % 3} for n in range(samples)])
    args = arguments(tmp_path, num_train_epochs=1)
    ElasticTrainer(Counting(), args, train_dataset=rows, global_batch_size=8, shards=shards).train()
    assert set(seen) == set(range(samples))
    assert len(seen) <= samples + 8 // shards, "the self-check computes a part again"


def test_the_batch_is_that_of_the_arguments_or_a_given_one(rows: Rows, tmp_path: Path) -> None:
    trainer = ElasticTrainer(model=Net(), args=arguments(tmp_path), train_dataset=rows)
    assert trainer.train().global_step == 12
    args = arguments(tmp_path, gradient_accumulation_steps=1, dataloader_drop_last=True)
    trainer = ElasticTrainer(model=Net(), args=args, train_dataset=rows, global_batch_size=9, shards=3)
    assert trainer.train().global_step == 12
    args = arguments(tmp_path, max_steps=7)
    trainer = ElasticTrainer(model=Net(), args=args, train_dataset=rows, global_batch_size=41)
    result = trainer.train()
    assert (result.global_step, trainer.state.epoch) == (7, 7)
    assert args.gradient_accumulation_steps == 2, "the arguments of the script stay as they are"


def test_it_goes_on_from_a_checkpoint_with_the_same_bits(rows: Rows, tmp_path: Path) -> None:
    def trained(name: str, kind: Any = ElasticTrainer, **more: Any) -> Any:
        args = arguments(tmp_path / name, save_strategy="steps", save_steps=5, lr_scheduler_type="cosine", **more)
        return kind(model=Net(), args=args, train_dataset=rows, callbacks=[callback])

    callback = transformers.TrainerCallback()
    whole = trained("whole")
    whole.train()
    again = trained("again")
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    assert hash_of(again.model) == hash_of(whole.model)
    assert again.state.log_history[-2]["loss"] == pytest.approx(whole.state.log_history[-2]["loss"])
    # And the Trainer as it is reads them. It has five updates an epoch here, the last one of a single sample.
    plain = trained("plain", PlainTrainer, per_device_train_batch_size=10)
    plain.args.gradient_accumulation_steps = 1
    plain.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-10"))
    assert plain.state.global_step == 15
    saved = torch.load(tmp_path / "whole" / "checkpoint-10" / "optimizer.pt", weights_only=True)
    assert saved["state"][0]["step"] == 10


def test_what_is_called_after_the_training(rows: Rows, tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_channels=1, num_labels=3,
    )  # fmt: skip
    pictures = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    data = Rows([{"pixel_values": picture, "labels": n % 3} for n, picture in enumerate(pictures)])
    trainer = ElasticSeq2SeqTrainer(
        model=transformers.ViTForImageClassification(config),
        args=transformers.Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True, num_train_epochs=1,
            dataloader_pin_memory=False,
        ),
        train_dataset=data, eval_dataset=data,
        compute_metrics=lambda found: {"right": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )  # fmt: skip
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < before["eval_loss"]
    found = trainer.predict(data)
    assert found.predictions.shape == (20, 3)
    assert found.metrics["test_right"] == after["eval_right"]
    trainer.save_model(str(tmp_path / "final"))
    loaded = transformers.ViTForImageClassification.from_pretrained(tmp_path / "final")
    assert hash_of(loaded) == hash_of(trainer.model)


def test_half_precision_by_autocast(rows: Rows, tmp_path: Path) -> None:
    seen = set()

    class Watched(Net):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            seen.add((torch.is_autocast_enabled("cpu"), self.body(x).dtype))
            return super().forward(x, labels)

    trainer = ElasticTrainer(model=Watched(), args=arguments(tmp_path, bf16=True), train_dataset=rows)
    assert trainer.train().training_loss < 1.2
    assert seen == {(True, torch.bfloat16)}


class Endless(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"auto_find_batch_size": True}, {}, "auto_find_batch_size"),
        ({"torch_compile": True}, {}, "torch_compile"),
        ({"train_sampling_strategy": "batch_rebalance"}, {}, "cannot rebalance"),
        ({"optim": "schedule_free_adamw"}, {}, "outside of its step"),
        ({"optim": "galore_adamw_layerwise"}, {}, "within the backward pass"),
        ({"max_steps": 3}, {"train_dataset": Endless()}, "cannot divide a Endless"),
        ({}, {"global_batch_size": 0}, "global_batch_size must be a whole number"),
        ({}, {"global_batch_size": 3, "shards": 4}, "A batch of 3 samples cannot have 4 shards"),
    ],
)
def test_what_cannot_work_is_refused(
    settings: dict[str, Any], more: dict[str, Any], message: str, rows: Rows, tmp_path: Path
) -> None:
    with pytest.raises(EdtError, match=message):
        ElasticTrainer(model=Net(), args=arguments(tmp_path, **settings), **{"train_dataset": rows, **more}).train()


def test_a_loss_that_is_a_sum_is_refused(tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, conv_dim=(16,),
        conv_kernel=(4,), conv_stride=(4,), num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, vocab_size=5,
    )  # fmt: skip
    model = transformers.Wav2Vec2ForCTC(config)
    with pytest.raises(EdtError, match="is a sum") as refused:
        ElasticTrainer(model=model, args=arguments(tmp_path))
    assert "ctc_loss_reduction = 'mean'" in refused.value.hint
    model.config.ctc_loss_reduction = "mean"
    ElasticTrainer(model=model, args=arguments(tmp_path))


def test_an_error_names_the_extra() -> None:
    code = "import sys; sys.modules['transformers'] = None; import edt_sdk.transformers"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "pip install 'jupyter-edt[transformers]'" in ended.stderr


def test_a_callback_may_evaluate_between_epochs_and_not_within_an_update(rows: Rows, tmp_path: Path) -> None:
    class Evaluates(transformers.TrainerCallback):
        def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            made.evaluate(rows, metric_key_prefix="train")

    class TooSoon(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            made.evaluate(rows)

    made = ElasticTrainer(model=Net(), args=arguments(tmp_path), train_dataset=rows, callbacks=[Evaluates()])
    made.train()
    assert len([line for line in made.state.log_history if "train_loss" in line]) == 4
    made = ElasticTrainer(model=Net(), args=arguments(tmp_path), train_dataset=rows, callbacks=[TooSoon()])
    with pytest.raises(EdtError, match="evaluates or saves in on_step_end"):
        made.train()


class Tokens(nn.Module):
    """Labels each position, and takes no `num_items_in_batch`: its loss is a mean over the labels of a batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 3))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.body(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def by_items(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    total = nn.functional.cross_entropy(outputs["logits"].flatten(0, 1), labels.flatten(), reduction="sum")
    return total / num_items_in_batch


class Others(ElasticTrainer):
    """For a loss over labels from 1 on."""

    def weight_of(self, inputs: Any) -> int:
        return int((inputs["labels"] > 0).sum())


class Nonzero(Tokens):
    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        assert labels is not None
        return super().forward(x, torch.where(labels == 0, -100, labels))


@pytest.mark.parametrize(
    ("kind", "net", "more"),
    [
        (ElasticTrainer, Tokens, {}),
        (ElasticTrainer, Tokens, {"compute_loss_func": by_items}),
        (Others, Nonzero, {}),
    ],
    ids=["mean", "compute_loss_func", "weight_of"],
)
def test_labels_that_count_for_nothing(kind: Any, net: Any, more: dict[str, Any], tmp_path: Path) -> None:
    """Half of the samples have none that counts, and so have whole parts."""
    numbers = torch.Generator().manual_seed(3)
    x = torch.randint(0, 9, (40, 5), generator=numbers)
    labels = torch.where(torch.arange(5) < torch.arange(40)[:, None] % 10 - 4, x % 3, -100)
    data = Rows([{"x": x[n], "labels": labels[n]} for n in range(40)])
    args = arguments(tmp_path, per_device_train_batch_size=12, gradient_accumulation_steps=1)
    plain = PlainTrainer(model=net(), args=args, train_dataset=data, **more)
    ours = kind(model=net(), args=args, train_dataset=data, shards=6, **more)
    expected, found = plain.train(), ours.train()
    assert found.training_loss == pytest.approx(expected.training_loss, rel=1e-5)
    for one, other in zip(ours.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_settings_that_change_how_samples_are_loaded_and_computed(tmp_path: Path) -> None:
    """Loader processes, lengths of the same kind together, activations that are computed again."""
    config = transformers.GPT2Config(
        vocab_size=9, n_positions=12, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    rows = [{"input_ids": torch.arange(3 + n % 5) % 9} for n in range(30)]

    def collate(samples: list[Any]) -> dict[str, torch.Tensor]:
        tokens = [sample["input_ids"] for sample in samples]
        return {
            "input_ids": nn.utils.rnn.pad_sequence(tokens, batch_first=True),
            "labels": nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=-100),
        }

    def trained(**more: Any) -> str:
        torch.manual_seed(5)
        args = arguments(
            tmp_path, num_train_epochs=2, train_sampling_strategy="group_by_length", neftune_noise_alpha=5, **more
        )
        model = transformers.GPT2LMHeadModel(config)
        made = ElasticTrainer(model=model, args=args, train_dataset=Rows(rows), data_collator=collate)
        assert made.train().training_loss < 2.3
        return hash_of(made.model)

    plain = trained()
    assert trained(dataloader_num_workers=2) == plain
    assert trained(activation_checkpointing=True) == plain
