"""Models with random weights in bf16, the layer sizes of well-known ones and few layers.

A Llama-shaped block is written here. A decoder (Qwen2.5 7B), an encoder (BERT large), a mixture of
experts (Qwen3 30B-A3B), a vision model (ViT large) and a speech model (Whisper large v3) are those
of `transformers`. Each has more bytes than L2, and runs without embeddings of words and without an
output layer.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

LLAMA = {"hidden": 4096, "intermediate": 14336, "heads": 32, "kv_heads": 8, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "decoder": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 2,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "use_cache": False,
    },
    "encoder": {
        "model_type": "bert",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 6,
        "num_attention_heads": 16,
        "max_position_embeddings": 4096,
    },
    "experts": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "use_cache": False,
    },
    "vision": {
        "model_type": "vit",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 6,
        "num_attention_heads": 16,
        "patch_size": 16,
    },
    "speech": {
        "model_type": "whisper",
        "d_model": 1280,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 20,
        "decoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "decoder_ffn_dim": 5120,
        "num_mel_bins": 128,
        "use_cache": False,
    },
}
"""Sizes of the Llama-shaped block, and configurations of `transformers`, else at defaults."""

LONGEST = {"encoder": 512, "vision": 256, "speech": 512}
"""Tokens of a sequence at most; more rows are several sequences."""


def llama(torch: Any, sizes: Mapping[str, int]) -> Any:
    """Blocks of Llama's shape: RMS norms, rotary embeddings, grouped causal attention, SwiGLU."""
    nn, functional = torch.nn, torch.nn.functional
    hidden, heads, kv_heads = sizes["hidden"], sizes["heads"], sizes["kv_heads"]
    width = hidden // heads

    def rotated(x: Any) -> Any:
        rows = torch.arange(x.shape[-2], device=x.device)
        powers = torch.arange(0, width, 2, device=x.device) / width
        angles = torch.outer(rows, 5e5**-powers).repeat(1, 2)
        low, high = x.chunk(2, -1)
        turned = torch.cat((-high, low), -1)
        return x * angles.cos().to(x.dtype) + turned * angles.sin().to(x.dtype)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.RMSNorm(hidden, eps=1e-5) for _ in range(2)])
            self.q, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
            self.k, self.v = (nn.Linear(hidden, kv_heads * width, bias=False) for _ in range(2))
            self.gate, self.up = (
                nn.Linear(hidden, sizes["intermediate"], bias=False) for _ in range(2)
            )
            self.down = nn.Linear(sizes["intermediate"], hidden, bias=False)

        def forward(self, x: Any) -> Any:
            normed = self.norms[0](x)
            q, k, v = (
                layer(normed).unflatten(-1, (-1, width)).transpose(1, 2)
                for layer in (self.q, self.k, self.v)
            )
            attended = functional.scaled_dot_product_attention(
                rotated(q), rotated(k), v, is_causal=True, enable_gqa=True
            )
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            normed = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    return nn.Sequential(*(Block() for _ in range(sizes["layers"])))


def built(torch: Any, name: str, rows: int, device: str) -> tuple[Any, dict[str, Any]]:
    """A model in bf16 and its inputs; the same on each call with the same arguments.

    The rows are tokens of sequences of equal length. A vision model has at least two tokens, those
    of the class and of a patch.
    """
    torch.manual_seed(0)
    sizes = dict(MODELS[name])
    batch = -(-rows // LONGEST.get(name, rows))
    length = rows // batch
    shapes: dict[str, tuple[int, ...]]
    with torch.device(device):
        if name == "llama":
            model = llama(torch, sizes).to(torch.bfloat16)
            shapes = {"input": (batch, length, sizes["hidden"])}
        else:
            kind = sizes.pop("model_type")
            if kind == "vit":
                patch, width = sizes["patch_size"], sizes["patch_size"] * max(1, length - 1)
                sizes["image_size"] = [patch, width]
                shapes = {"pixel_values": (batch, 3, patch, width)}
            elif kind == "whisper":
                sizes |= {"max_source_positions": length, "max_target_positions": length}
                shapes = {
                    "input_features": (batch, sizes["num_mel_bins"], 2 * length),
                    "decoder_inputs_embeds": (batch, length, sizes["d_model"]),
                }
            else:
                shapes = {"inputs_embeds": (batch, length, sizes["hidden_size"])}
            from transformers import AutoConfig, AutoModel

            config = AutoConfig.for_model(kind, **sizes)
            model = AutoModel.from_config(config, dtype=torch.bfloat16).to(device)
        inputs = {key: torch.randn(*shape).to(torch.bfloat16) for key, shape in shapes.items()}
    return model.requires_grad_(False).eval(), inputs


def hidden_states(output: Any) -> Any:
    """The last hidden states of what a model returned."""
    return getattr(output, "last_hidden_state", output)


def reference(model: Any, inputs: Mapping[str, Any]) -> Any:
    """The last hidden states of a model in fp64."""
    exact = copy.deepcopy(model).double()
    if hasattr(exact, "set_experts_implementation"):
        with suppress(ValueError):  # models without experts
            exact.set_experts_implementation("eager")  # the others have no fp64
    return hidden_states(exact(**{name: value.double() for name, value in inputs.items()})).cpu()


def checksum(model: Any) -> float:
    """A number that tells two models with different weights apart."""
    return sum(float(weight.double().abs().sum()) for weight in model.parameters())
