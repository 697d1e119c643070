"""Builds the families of families_cases.py: small modules with random weights, and data that fits them. Nothing is
downloaded, neither weights nor configurations."""
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import timm
import torch
import transformers
from torch import nn
from transformers.models.auto import modeling_auto

import families_cases
import toy

LENGTH, VOCABULARY, SPECIAL_TOKENS, SIDE, WAVE, FRAMES = 12, 96, 3, 64, 400, 32
NESTED = ("text_config", "vision_config", "backbone_config", "encoder_config", "decoder_config")
BINS = ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins")
HEADS = {  # kind: where transformers lists the class of a model type
    "text": ["SEQUENCE_CLASSIFICATION"], "decoder": ["CAUSAL_LM"],
    "translator": ["SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"],
    "image": ["IMAGE_CLASSIFICATION"],
    "dense": ["SEMANTIC_SEGMENTATION", "DEPTH_ESTIMATION", "OBJECT_DETECTION", "IMAGE_TO_IMAGE"],
    "wave": ["CTC"], "spectrum": ["AUDIO_CLASSIFICATION"], "speech": ["SPEECH_SEQ_2_SEQ"],
    "pair": ["ZERO_SHOT_IMAGE_CLASSIFICATION"],
    "video": ["VIDEO_CLASSIFICATION"], "series": ["TIME_SERIES_CLASSIFICATION"],
}


class OfOne(nn.Module):
    """A model of one input whose output is one tensor, as exporters want it."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def call(self, *inputs):
        options = {"use_cache": False} if hasattr(getattr(self.model, "config", None), "use_cache") else {}
        output = self.model(**dict(zip(self.names, inputs)), **options) if self.names else self.model(*inputs)
        for name in ("logits", "logits_per_image", "predicted_depth", "prediction_logits",
                     "prediction_outputs", "reconstruction", "last_hidden_state"):
            if getattr(output, name, None) is not None:
                return getattr(output, name)
        return output if torch.is_tensor(output) else output[0]

    def forward(self, a):
        return self.call(a)


class OfTwo(OfOne):
    def forward(self, a, b):
        return self.call(a, b)


def tokens(name, samples):
    return toy.whole(name, VOCABULARY - SPECIAL_TOKENS, samples, LENGTH) + SPECIAL_TOKENS


def text_mask(samples):
    ends = toy.whole("lengths", LENGTH // 2, samples, 1) + LENGTH // 2 + 1
    return (numpy.arange(LENGTH)[None] < ends).astype(numpy.int64)


def side_of(config):
    for holder in (config, getattr(config, "vision_config", None)):
        size = getattr(holder, "image_size", None)
        if size:
            return size if isinstance(size, int) else size[0]
    return SIDE


def inputs_of(kind, config, samples):
    """The columns that a model of that kind is fed with, by the names of its arguments."""
    side = side_of(config)
    images = toy.uniform("x", samples, 3, side, side)
    if kind == "text":
        return {"input_ids": tokens("tokens", samples), "attention_mask": text_mask(samples)}
    if kind in ("spectrum", "speech"):
        bins = next(getattr(config, name) for name in BINS if hasattr(config, name))
        shape = (bins, FRAMES) if config.model_type == "whisper" else (FRAMES, bins)
        name = "input_values" if config.model_type == "audio-spectrogram-transformer" else "input_features"
        return {name: toy.uniform("x", samples, *shape)} | (
            {"decoder_input_ids": tokens("target", samples)} if kind == "speech" else {})
    return {
        "decoder": lambda: {"input_ids": tokens("tokens", samples)},
        "translator": lambda: {"input_ids": tokens("tokens", samples), "decoder_input_ids": tokens("target", samples)},
        "image": lambda: {"pixel_values": images}, "dense": lambda: {"pixel_values": images},
        "wave": lambda: {"input_values": toy.uniform("x", samples, WAVE)},
        "pair": lambda: {"input_ids": tokens("tokens", samples), "pixel_values": images},
        "video": lambda: {"pixel_values": toy.uniform("x", samples, config.num_frames, 3, side, side)},
        "series": lambda: {"past_values": toy.uniform("x", samples, config.context_length, config.num_input_channels)},
    }[kind]()


def small_fields(config, own):
    """What SMALL says of the fields that the configuration has, dropout 0, and the family's own."""
    fields = {key: value for key, value in families_cases.SMALL.items() if hasattr(config, key) and
              not (key == "image_size" and getattr(config, key) is None)}
    for key, value in vars(config).items():
        if "drop" in key and isinstance(value, float):
            fields[key] = 0.0
        elif key in NESTED and isinstance(value, transformers.PretrainedConfig):
            fields[key] = small_fields(value, {})
    return {key: value for key, value in (fields | own).items() if value is not families_cases.OMIT}


def class_of(kind, family):
    for head in HEADS[kind]:
        names = getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").get(family)
        if names:
            return getattr(transformers, names if isinstance(names, str) else names[0])
    name = modeling_auto.MODEL_MAPPING_NAMES[family]
    return getattr(transformers, name if isinstance(name, str) else name[0])


def build_transformers(kind, family, own):
    blank = transformers.CONFIG_MAPPING[family]
    config = blank(**small_fields(blank(), own or {}))
    model = class_of(kind, family)(config)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")  # grouped_mm has no float64, and eager cannot be exported
    return model, lambda samples: inputs_of(kind, config, samples)


def build_timm(name, side, options):
    sized = {"img_size": side} if takes_size(name) and side else {}
    model = timm.create_model(name, pretrained=False, num_classes=4, **sized, **options)
    side = side or model.default_cfg["input_size"][-1]
    return model, lambda samples: {"x": toy.uniform("x", samples, 3, side, side)}


def takes_size(name):
    """Whether the constructor wants to know how large images are."""
    return any(word in name for word in (
        "vit", "beit", "cait", "deit", "eva", "mixer", "swin", "hiera", "nest", "coat_", "tnt", "sequencer", "volo",
        "pit_", "xcit", "mvit", "crossvit", "tiny_vit", "twins", "visformer", "vitamin"
    )) and not any(word in name for word in (
            "davit", "convmixer", "hieradet", "fastvit", "efficientvit", "nextvit", "repvit", "mobilevit", "gcvit",
            "edgenext", "starnet", "shvit", "crossvit",
            "maxvit", "resnest", "densenet", "tiny_vit", "sequencer", "pit_ti", "nest14", "efficientvim"))


def set_dropout(module):
    """0, whatever a constructor took it from."""
    for part in module.modules():
        for key, value in list(vars(part).items()):
            if "drop" in key and isinstance(value, float):
                setattr(part, key, 0.0)
        if isinstance(part, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)):
            part.p = 0.0


def set_vectors(module):
    """No two tensors are alike, no vector is of zeros: what is wrong with one shows, and each is known by
    its values."""
    seen = set()
    with torch.no_grad():
        for key, parameter in module.named_parameters():
            content = parameter.numpy().tobytes()
            if parameter.numel() and (parameter.dim() < 2 or parameter.min() == parameter.max() or content in seen):
                parameter.add_(torch.tensor(toy.uniform(key, *parameter.shape)).to(parameter.dtype) * 0.05)
            seen.add(content)


def build(library, kind, family, row):
    """The module, in training form, and a function from a count of samples to its inputs by name."""
    torch.manual_seed(0)
    if library == "timm":
        model, inputs = build_timm(*row)
        module = OfOne(model, None)
    else:
        model, inputs = build_transformers(kind, family, row)
        names = list(inputs(1))
        module = (OfOne if len(names) == 1 else OfTwo)(model, names)
    set_dropout(module)
    set_vectors(module)
    return module.float().train(), inputs
