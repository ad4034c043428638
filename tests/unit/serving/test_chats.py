"""Chat templates without transformers: they write what transformers writes, and reach nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.sealed import seal
from tests.unit.serving.writers import CHAT, byte_tokenizer, write_decoder

from mvprune.artifact import ArtifactError, read_manifest
from mvprune.serving.chats import ChatTemplate, read_chat_template
from mvprune.serving.writing import PromptRefused

CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": " hi <b>\u00e9\u65e5</b>\n"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ]
    * 2,
]
TEMPLATES = {
    "ChatML": "{%- for message in messages %}\n  {{- '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "| trim + '<|im_end|>' + '\n' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "tokens": "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{{ unk_token }}{% endfor %}",
    "blocks": "\n  {% if messages[0].role == 'system' %}\n  first\n  {% endif %}\n{# said #}\n{{ messages | length }}",
    "loops": "{% for m in messages %}{% if loop.index0 == 1 %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index0 > 2 %}{% break %}{% endif %}{% endfor %}",
    "names": "{% set ns = namespace(last='', n=0) %}{% for m in messages %}{% set ns.last = m.role %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.last }} {{ ns.n }} "
    "{{ dict(a=1, **{'b': 2}) }} {{ dict.fromkeys('ab') }}",
    "generation": "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ m.content }}{{ x }}"
    "{% endgeneration %}{{ x }}{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2, sort_keys=true, ensure_ascii=true) }}",
    "nothing given": "{{ tools is none }}{{ documents is none }}{{ other is defined }}{{ other }}"
    "{{ strftime_now('%Y') }}",
    "escapes": "{{ '<&>' }}{{ messages[0].content }}{{ messages[0].nothing }}{{ raise_exception.__globals__ }}|"
    "{{ range(3) | list }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_they_write_what_transformers_writes(name: str, tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out", TEMPLATES[name])
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    template = read_chat_template(folder, read_manifest(folder))
    assert template
    for chat in CHATS:
        expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert template.prompt(chat) == expected != ""


HOSTILE = (
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.append({'role': 'user'}) }}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ dict.mro() }}",
    "{{ messages | attr('__class__') }}{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{% include 'manifest.json' %}",
    "{% for m in messages %}",
    "{{ 1 / 0 }}",
    "{{ range(10000000) | list }}",
)


@pytest.mark.parametrize("source", HOSTILE)
def test_what_they_must_not_do_is_refused(source: str) -> None:
    refusing: Any = byte_tokenizer(source)
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever transformers raises)
        refusing.apply_chat_template(CHATS[0], tokenize=False)
    with pytest.raises(PromptRefused, match="must be a chat that the model's chat template takes: "):
        ChatTemplate(source, {}).prompt(CHATS[0])


def test_the_files_are_those_of_the_manifest(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out", CHAT)
    manifest = read_manifest(folder)
    (folder / "chat_template.jinja").write_text("{{ 1 }}")
    with pytest.raises(ArtifactError, match=r"chat_template\.jinja: must have the SHA-256"):
        read_chat_template(folder, manifest)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ArtifactError, match=r"chat_template\.jinja: cannot be read"):
        read_chat_template(folder, manifest)


def test_a_template_in_the_settings(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path / "out")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_bytes())
    path.write_text(json.dumps(settings | {"chat_template": "{{ eos_token }}", "eos_token": {"content": "<e>"}}))
    template = read_chat_template(folder, seal(folder, read_manifest(folder)))
    assert template
    assert template.prompt(CHATS[0]) == "<e>"
    for content, said in (("[]", "must be a JSON object"), ("{", "tokenizer_config.json: ")):
        path.write_text(content)
        with pytest.raises(ArtifactError, match=said):
            read_chat_template(folder, seal(folder, read_manifest(folder)))
