"""What else writes text with a dense model on a CPU: each rival is built from it and gives a call to time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from mvprune.export.graphs import ONNX_FILE
from mvprune.export.writing import DECODER_FILE, ENCODER_FILE, NEXT_FILE, graphs_of
from mvprune.runtime._onnx import round_to_int8, trace

Write = Callable[[int], object]
"""Writes that many tokens."""

_PAST, _PRESENT = "past_key_values.", "present."


def by_onnxruntime(model: Any, prompt: torch.Tensor, threads: int, folder: Path) -> Write:
    """ONNX Runtime with the files of `mvpctl export --to onnx --quantize int8`. The keys and values of one call are the
    next one's without a copy.

    Args:
        model: dense; used for nothing else.
        prompt: token ids, or those of the source, shape (1, tokens).
        threads: of every call.
        folder: for the files.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for more work would take the cores of the next contender.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    graphs, sessions = graphs_of(model), dict[str, _Session]()
    made = graphs.all()
    folder.mkdir()
    for graph in made:
        fp32, int8 = folder / f"fp32-{graph.file}", folder / graph.file
        trace(graph.model, graph.example, list(graphs.run(graph.model, graph.example)), fp32, graph.sizes)
        round_to_int8(fp32, int8)
        fp32.unlink()
        sessions[graph.file] = _Session(int8, options)
    ids = prompt.numpy()
    if model.config.is_encoder_decoder:
        start = model.config.decoder_start_token_id
        return lambda tokens: _answered(sessions, ids, start, tokens)
    shapes = {name: value.shape for name, value in made[0].example.items() if name.startswith(_PAST)}
    past = {name: _value(np.zeros((1, shape[1], 0, shape[3]), np.float32)) for name, shape in shapes.items()}
    return lambda tokens: _continued(sessions[ONNX_FILE], ids, past, tokens)


class _Session:
    """A file in onnxruntime, whose arrays stay its own."""

    def __init__(self, path: Path, options: Any) -> None:
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._inputs = {one.name for one in self._session.get_inputs()}

    def __call__(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name."""
        given = values | {name: _value(array) for name, array in arrays.items() if name in self._inputs}
        return dict(zip(self._names, self._session.run_with_ort_values(self._names, given), strict=True))


def _continued(session: _Session, prompt: np.ndarray, past: dict[str, Any], tokens: int) -> list[int]:
    """Tokens that a decoder writes after a prompt."""
    text, new = [], prompt
    for length in range(prompt.shape[1], prompt.shape[1] + tokens):
        places = np.arange(length - new.shape[1], length)[None]
        mask = np.ones((1, length), np.int64)
        outputs = session({"input_ids": new, "attention_mask": mask, "position_ids": places}, past)
        new, past = _next_token(outputs), _past(outputs)
        text.append(int(new[0, 0]))
    return text


def _answered(sessions: dict[str, _Session], source: np.ndarray, start: int, tokens: int) -> list[int]:
    """Tokens that an encoder-decoder writes from a source."""
    mask, new, text = np.ones_like(source), np.array([[start]]), list[int]()
    read = sessions[ENCODER_FILE]({"input_ids": source, "attention_mask": mask}, {})
    values, session = {"encoder_hidden_states": read["last_hidden_state"]}, sessions[DECODER_FILE]
    for _ in range(tokens):
        outputs = session({"input_ids": new, "encoder_attention_mask": mask}, values)
        new = _next_token(outputs)
        values = _past(outputs) if session is sessions[DECODER_FILE] else values | _past(outputs)
        session = sessions[NEXT_FILE]
        text.append(int(new[0, 0]))
    return text


def _next_token(outputs: dict[str, Any]) -> np.ndarray:
    token: np.ndarray = outputs["logits"].numpy()[:, -1:].argmax(-1)
    return token


def _past(outputs: dict[str, Any]) -> dict[str, Any]:
    return {_PAST + name.removeprefix(_PRESENT): value for name, value in outputs.items() if name.startswith(_PRESENT)}


def _value(array: np.ndarray) -> Any:
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def by_ctranslate2(model: Any, prompt: list[int], threads: int, folder: Path) -> dict[str, Write]:
    """CTranslate2 in int8 and fp32; {} where it is not installed."""
    try:
        import ctranslate2
    except ImportError as reason:
        print(f"CTranslate2 cannot run here: {reason}")
        return {}
    words = {f"w{number}": number for number in range(model.config.vocab_size)}
    known = Tokenizer(models.WordLevel(words, unk_token="w0"))
    special = {f"{name}_token": f"w{place}" for place, name in enumerate(("bos", "pad", "eos", "unk"))}
    PreTrainedTokenizerFast(tokenizer_object=known, **special).save_pretrained(folder / "model")
    model.config.normalize_before = False  # of BART; the converter of 4.8 reads what transformers has no longer
    model.save_pretrained(folder / "model")
    writers: dict[str, Write] = {}
    text = [f"w{number}" for number in prompt]
    for numbers in ("int8", "float32"):
        target = str(folder / numbers)
        with contextlib.redirect_stdout(None):
            ctranslate2.converters.TransformersConverter(str(folder / "model")).convert(target, quantization=numbers)
        options = {"compute_type": numbers, "intra_threads": threads, "inter_threads": 1}
        if model.config.is_encoder_decoder:
            translator = ctranslate2.Translator(target, **options)

            def write(tokens: int, translator: Any = translator) -> object:
                lengths = {"max_decoding_length": tokens, "min_decoding_length": tokens}
                return translator.translate_batch([text], beam_size=1, **lengths)
        else:
            generator = ctranslate2.Generator(target, **options)

            def write(tokens: int, generator: Any = generator) -> object:
                lengths = {"max_length": tokens, "min_length": tokens}
                return generator.generate_batch([text], sampling_topk=1, include_prompt_in_result=False, **lengths)

        writers[f"CTranslate2 {numbers}"] = write
    return writers
