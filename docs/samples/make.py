"""Write the samples of this folder with the real safetensors library: ``python docs/samples/make.py``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent


def tiny_gpt() -> dict[str, np.ndarray]:
    """A transformer of GPT-2's layout, far too small to say anything."""
    rng = np.random.default_rng(20261120)

    def weights(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float16)

    width, layers = 16, 3
    model = {"wte.weight": weights(64, width), "wpe.weight": weights(32, width)}
    for layer in range(layers):
        name = f"h.{layer}"
        model[f"{name}.ln_1.weight"] = np.ones(width, np.float32)
        model[f"{name}.attn.c_attn.weight"] = weights(width, 3 * width)
        model[f"{name}.attn.c_proj.weight"] = weights(width, width)
        model[f"{name}.mlp.c_fc.weight"] = weights(width, 4 * width)
        model[f"{name}.mlp.c_proj.weight"] = weights(4 * width, width)
        model[f"{name}.attn.mask"] = np.tri(8, dtype=bool)
    model["ln_f.weight"] = np.ones(width, np.float32)
    return model


def main() -> None:
    model = tiny_gpt()
    whole = HERE / "tiny-gpt.safetensors"
    save_file(model, whole, metadata={"format": "np", "license": "Apache-2.0"})
    content = whole.read_bytes()
    (HERE / "tiny-gpt.cut.safetensors").write_bytes(content[: len(content) * 6 // 10])

    folder = HERE / "sharded"
    folder.mkdir(exist_ok=True)
    names = sorted(model)
    weight_map: dict[str, str] = {}
    for number, part in enumerate((names[:7], names[7:14], names[14:]), 1):
        shard = f"model-{number:05d}-of-00003.safetensors"
        save_file({name: model[name] for name in part}, folder / shard, metadata={"format": "np"})
        weight_map |= dict.fromkeys(part, shard)
    total = sum(tensor.nbytes for tensor in model.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


if __name__ == "__main__":
    main()
