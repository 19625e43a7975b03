#!/usr/bin/env python3
"""Makes test/golden/models/: one small GPT-2 in the forms that transformers, llm.c and llama.cpp have, and blocks of
ggml's quantized types.

usage: model_files.py                        in a virtual environment with torch, transformers, safetensors and gguf;
                                             from the repository's root
       model_files.py --check FILE FOLDER    FILE, made by `train_gpt2 export gguf --init FOLDER`, must hold the tensors
                                             of the Hugging Face folder, bit for bit as gguf-py quantizes them

All weights are multiples of 1/16, which every type holds, so that all files have the same ones.

    f32              GPT2LMHeadModel.save_pretrained: names with `transformer.`
    bf16_sharded     the same in BF16, cut into shards, which model.safetensors.index.json lists
    f16_bare         GPT2Model.save_pretrained in F16: no `transformer.`, with the mask buffers of older versions
    f32_head         in F32, cut into shards, with lm_head.weight
    llmc_f32.bin, llmc_bf16.bin    as llm.c's train_gpt2.py writes them, from its description of the format
    f16.gguf, bf16.gguf            by gguf-py's writer, with names as llama.cpp's converter gives them
    blocks.safetensors             x (n,32); its bytes in each type, TYPE, and those read back, TYPE.x
"""
import json
import os
import shutil
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

FOLDER = "test/golden/models"
TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}
NAMES = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
         "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def gguf_name(name):
    parts = name.removeprefix("transformer.").split(".")
    block = f"blk.{parts[1]}." if parts[0] == "h" else ""
    parts = parts[2:] if block else parts
    return block + NAMES[".".join(parts[:-1])] + "." + parts[-1]


def ours(name, tensor):
    """The tensor as torch.nn.Linear has it: Conv1D's weights are transposed."""
    linear = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
    return tensor.t().contiguous() if linear and tensor.dim() == 2 else tensor


def make_model():
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=45, n_positions=7, n_layer=2, n_head=2, n_embd=8, bos_token_id=44, eos_token_id=44)
    model = GPT2LMHeadModel(config).float()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randint(-32, 33, p.shape) / 16)
    return model


def save_folders(model):
    model.save_pretrained(FOLDER + "/f32")
    state = {k: v.contiguous() for k, v in model.state_dict().items()}
    model.bfloat16().save_pretrained(FOLDER + "/bf16_sharded", max_shard_size="2KB")
    model.half()
    model.transformer.save_pretrained(FOLDER + "/f16_bare")
    path = FOLDER + "/f16_bare/model.safetensors"
    bare = load_file(path)
    assert not any(name.startswith("transformer.") for name in bare)
    for layer in range(2):
        bare[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(7, 7, dtype=torch.uint8)).view(1, 1, 7, 7)
        bare[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(bare, path, {"format": "pt"})
    folder = FOLDER + "/f32_head"
    os.makedirs(folder)
    shutil.copy(FOLDER + "/f32/config.json", folder)
    names = sorted(state)
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, chosen in files.items():
        save_file({name: state[name].clone() for name in chosen}, f"{folder}/{file}", {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, chosen in files.items() for name in chosen}}
    assert "lm_head.weight" in index["weight_map"]
    with open(folder + "/model.safetensors.index.json", "w") as f:
        json.dump(index, f)
    return state


def save_llmc(state, path, version, dtype):
    header = np.zeros(256, dtype=np.int32)
    header[:8] = [20240326, version, 7, 45, 2, 2, 8, 128]
    rows = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
            "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
            "mlp.c_proj.bias"]
    names = [f"h.{layer}.{row}" for row in rows for layer in range(2)]
    with open(path, "wb") as f:
        f.write(header.tobytes())
        for name in ["wte.weight", "wpe.weight"] + names + ["ln_f.weight", "ln_f.bias"]:
            tensor = ours(name, state["transformer." + name])
            if name == "wte.weight":
                tensor = torch.nn.functional.pad(tensor, (0, 0, 0, 128 - 45))
            f.write(tensor.to(dtype).contiguous().view(torch.uint8).numpy().tobytes())


def save_gguf(state, path, kind):
    w = gguf.GGUFWriter(path, "gpt2")
    w.add_context_length(7)
    w.add_embedding_length(8)
    w.add_feed_forward_length(32)
    w.add_block_count(2)
    w.add_head_count(2)
    w.add_layer_norm_eps(1e-5)
    w.add_array("tokenizer.ggml.tokens", ["a", "b"])
    w.add_array("tokenizer.ggml.token_type", [1, 1])
    for name, tensor in state.items():
        if name == "lm_head.weight":
            continue
        array = ours(name, tensor).numpy()
        as_is = array.ndim == 1 or "wpe" in name
        t = gguf.GGMLQuantizationType[TYPES["f32" if as_is else kind]]
        w.add_tensor(gguf_name(name), gguf.quantize(array, t), raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def save_blocks():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((24, 32)).astype(np.float32)
    x *= np.float32(10) ** rng.integers(-6, 3, (24, 1)).astype(np.float32)
    x[0] = 0
    x[1] = np.arange(32) / 2 - 8  # halves: ties
    x[2] = np.arange(32) - 16
    x[3] = np.where(np.arange(32) % 2, 1, -1)  # the first of the largest counts
    x[4] = 127 * np.arange(32) / 62
    out = {"x": torch.from_numpy(x)}
    for name, t in TYPES.items():
        t = gguf.GGMLQuantizationType[t]
        q = np.ascontiguousarray(gguf.quantize(x, t))
        out[name] = torch.from_numpy(q.view(np.uint8).copy())
        out[name + ".x"] = torch.from_numpy(gguf.dequantize(q, t).astype(np.float32).copy())
    save_file(out, FOLDER + "/blocks.safetensors")


def check(path, folder):
    state, reader = load_file(folder + "/model.safetensors"), gguf.GGUFReader(path)
    found = {t.name: t for t in reader.tensors}
    file_type = reader.fields["general.file_type"].contents()
    kind = gguf.LlamaFileType(file_type).name
    mostly = "F32" if kind == "ALL_F32" else kind.removeprefix("MOSTLY_")
    state = {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}
    assert set(found) == {gguf_name(name) for name in state}
    for name, tensor in state.items():
        t, array = found[gguf_name(name)], ours(name, tensor.float()).numpy()
        want = "F32" if array.ndim == 1 or "wpe" in name else mostly
        if array.shape[-1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[want]][0]:
            want = "F16"
        assert t.tensor_type.name == want, (name, t.tensor_type)
        wanted = gguf.quantize(array, gguf.GGMLQuantizationType[want])
        assert list(t.shape) == list(reversed(array.shape)), (name, t.shape)
        assert np.array_equal(np.ascontiguousarray(wanted).view(np.uint8).ravel(),
                              np.ascontiguousarray(t.data).view(np.uint8).ravel()), name
    tokens = reader.fields["tokenizer.ggml.tokens"]
    print(f"{path}: {len(found)} tensors as gguf-py makes them ({mostly}), {len(tokens.data)} tokens, "
          f"{len(reader.fields['tokenizer.ggml.merges'].data)} merges")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(*sys.argv[2:4])
        sys.exit()
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    state = save_folders(make_model())
    save_llmc(state, FOLDER + "/llmc_f32.bin", 3, torch.float32)
    save_llmc(state, FOLDER + "/llmc_bf16.bin", 5, torch.bfloat16)
    save_gguf(state, FOLDER + "/f16.gguf", "f16")
    save_gguf(state, FOLDER + "/bf16.gguf", "bf16")
    save_blocks()
