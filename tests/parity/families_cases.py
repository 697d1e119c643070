"""The architecture families of families.py: a row for each, with what makes it small.

Of transformers: what SMALL says where the family's configuration has such a field, and then its row. Of timm: a model
of each of its modules, the one that costs least, with what its constructor takes."""

# Where a configuration has such a field. Dropout of any name is 0 by families_models.py.
SMALL = {
    "vocab_size": 96, "hidden_size": 32, "d_model": 32, "n_embd": 32, "embedding_size": 32, "dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    "intermediate_size": 64, "ffn_dim": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_ff": 64, "d_inner": 64,
    "hidden_dim": 64, "mlp_hidden_size": 64, "expert_dim": 32, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "max_position_embeddings": 64, "n_positions": 64,
    "n_ctx": 64, "num_labels": 4, "image_size": 32, "patch_size": 8, "sliding_window": 8, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0, "type_vocab_size": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False, "router_aux_loss_coef": 0.0,
    "output_router_logits": False, "use_mamba_kernels": False, "state_size": 8, "mask_time_prob": 0.0,
}
STAGES = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}
AUDIO = {"conv_dim": [16, 16], "conv_kernel": [10, 4], "conv_stride": [5, 4], "num_feat_extract_layers": 2}
OMIT = ...  # SMALL is not for this field
LISTED = {"num_attention_heads": OMIT, "num_hidden_layers": OMIT}  # what has a value for each stage
DSV = {"first_k_dense_replace": 1, "n_shared_experts": 1, "num_key_value_heads": 4, "head_dim": 8}

# What no export keeps of these: the backward of a torch.autograd.Function that is not the derivative of its forward.
OWN_GRADIENT = {"yoso"}

# Where, at the others' learning rate, the input of a ReLU is within a rounding of 0 (docs/FAMILIES.md).
RATES = {"densenet": 0.005, "ghostnet": 0.005, "res2net": 0.005, "resnest": 0.005}

# kind of inputs: {family: fields}; None: what SMALL says is enough.
TRANSFORMERS = {
    "text": {  # a class for each text
        "albert": None, "bert": None, "big_bird": {"attention_type": "original_full"}, "camembert": None,
        "canine": None,
        "convbert": None, "data2vec-text": None, "deberta": {"pos_att_type": ["c2p", "p2c"],
        "relative_attention": True},
        "deberta-v2": {"pos_att_type": ["c2p", "p2c"], "relative_attention": True, "position_buckets": 8},
        "distilbert": None, "electra": None, "ernie": None, "esm": None, "eurobert": None, "flaubert": None,
        "fnet": None,
        "funnel": {"block_sizes": [1, 1], "num_decoder_layers": 1, "num_hidden_layers": OMIT}, "gte": None,
        "ibert": None, "jina_embeddings_v3": None,
        "layoutlm": None, "longformer": {"attention_window": 4}, "megatron-bert": None, "mobilebert":
        {"true_hidden_size": 32, "intra_bottleneck_size": 32}, "modernbert": {"local_attention": 8}, "mpnet": None,
        "mra": None, "nomic_bert": None, "nystromformer": {"num_landmarks": 12, "segment_means_seq_len": 12},
        "rembert": {"input_embedding_size": 16, "output_embedding_size": 16}, "roberta": None,
        "roberta-prelayernorm": None, "roc_bert": {"pronunciation_vocab_size": 96, "shape_vocab_size": 96},
        "roformer": None,
        "squeezebert": None, "xlm": {"emb_dim": 32}, "xlm-roberta": None, "xlm-roberta-xl": None,
        "xlnet": {"max_position_embeddings": OMIT},
        "xmod": {"languages": ["en"], "default_language": "en"}, "yoso": None,
    },
    "decoder": {  # the next token
        "apertus": None, "arcee": None, "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1,
        "mamba_d_state": 8,
        "attn_layer_indices": [1]}, "biogpt": None, "bitnet": None, "bloom": None, "codegen": {"rotary_dim": 4},
        "cohere": None, "cohere2": None, "ctrl": {"dff": 64}, "dbrx": None,
        "deepseek_v2": DSV, "deepseek_v3": DSV, "diffllama": None, "dots1": DSV, "exaone4": None,
        "falcon": {"head_dim": OMIT},
        "falcon_mamba": {"time_step_rank": 4}, "gemma": None, "gemma2": None, "gemma3_text": None,
        "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "activation_sparsity_pattern": [0.0, 0.0],
        "laurel_rank": 4},
        "glm": None, "glm4": None, "glm4_moe": {"first_k_dense_replace": 1}, "gpt2": None, "gpt_bigcode": None,
        "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4}, "gpt_neox": None,
        "gpt_neox_japanese": None, "gpt_oss": None, "gptj": {"rotary_dim": 4}, "granite": None, "granitemoe": None,
        "helium": None, "hunyuan_v1_dense": None, "internlm3": None, "jamba": {"mamba_dt_rank": 4,
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
        "jetmoe": None,
        "lfm2": {"layer_types": ["conv", "full_attention"]}, "llama": None, "mamba": {"time_step_rank": 4},
        "mamba2": {"head_dim": 8, "num_heads": 8, "n_groups": 1}, "minimax": None, "ministral": None, "mistral": None,
        "mixtral": None, "modernbert-decoder": {"local_attention": 8}, "mpt": {"expansion_ratio": 2},
        "nanochat": None, "nemotron": None, "olmo": None, "olmo2": None, "olmo3": None, "olmoe": None,
        "openai-gpt": None,
        "opt": {"word_embed_proj_dim": 32}, "persimmon": None, "phi": None,
        "phi3": {"original_max_position_embeddings": 64},
        "phimoe": None, "qwen2": None, "qwen2_moe": None, "qwen3": None, "qwen3_moe": None, "qwen3_next":
        {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"]}, "recurrent_gemma": {"lru_width": 32,
        "block_types": ["recurrent", "attention"], "attention_window_size": 8},
        "reformer": {"attn_layers": ["local", "local"], "axial_pos_embds": False, "attention_head_size": 8,
        "local_attn_chunk_length": 6, "feed_forward_size": 64, "is_decoder": True},
        "rwkv": {"attention_hidden_size": 32},
        "seed_oss": None, "smollm3": None, "stablelm": None, "starcoder2": None, "xglm": {"attention_heads": 4},
        "xlstm": {"v_head_dim": OMIT, "head_dim": OMIT}, "zamba": {"layer_types": ["mamba", "hybrid"]},
        "zamba2": {"layer_types": ["mamba", "hybrid"]},
    },
    "translator": {  # the next token, given another text
        "bart": None, "bigbird_pegasus": {"attention_type": "original_full"}, "blenderbot": None,
        "blenderbot-small": None,
        "fsmt": {"src_vocab_size": 96, "tgt_vocab_size": 96, "langs": ["en", "de"]}, "led": {"attention_window": 4,
        "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}, "longt5": {"local_radius": 4},
        "m2m_100": None, "marian": None, "mbart": None, "mt5": None, "mvp": None, "nllb-moe": None, "pegasus": None,
        "pegasus_x": {"block_size": 6, "num_global_tokens": 2}, "plbart": None,
        "prophetnet": {"num_hidden_layers": OMIT, "num_encoder_layers": 2,
        "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}, "switch_transformers":
        {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}, "t5": None, "umt5": None,
    },
    "image": {  # a class for each image
        "beit": None, "bit": STAGES | {"num_groups": 4}, "convnext": STAGES, "convnextv2": STAGES,
        "cvt": {"embed_dim": [8, 16, 32],
        "depth": [1, 1, 2], "num_heads": [1, 2, 4], "patch_size": OMIT}, "data2vec-vision": None, "deit": None,
        "dinov2": None,
        "dinov2_with_registers": None, "dinov3_vit": None, "efficientnet": {"width_coefficient": 0.25,
        "depth_coefficient": 0.25, "image_size": 64, "hidden_dim": 320},
        "focalnet": {"embed_dim": 8, "depths": [1, 1, 1, 1], "patch_size": 4},
        "hgnet_v2": None, "hiera": {"image_size": [64, 64], "patch_size": [7, 7], "embed_dim": 16,
        "depths": [1, 1, 1, 1],
        "num_heads": [1, 2, 4, 8], "num_layers": OMIT} | LISTED, "ijepa": None,
        "levit": {"image_size": 64, "patch_size": 16, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, "mobilenet_v1": {"depth_multiplier": 0.25},
        "mobilenet_v2": {"depth_multiplier": 0.25}, "mobilevit": {"image_size": 64, "patch_size": 2,
        "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32]}, "mobilevitv2":
        {"image_size": 64, "patch_size": 2, "width_multiplier": 0.25}, "poolformer": STAGES | {"patch_size": 7,
        "image_size": 64}, "pvt": {"image_size": 64, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 2, 4]}, "pvt_v2": {"image_size": 64, "hidden_sizes": [8, 16, 16, 32],
        "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4]}, "regnet": STAGES | {"embedding_size": 8,
        "groups_width": 4}, "resnet": STAGES | {"embedding_size": 8}, "siglip": {"vision_config": {"hidden_size": 32,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}},
        "swiftformer": {"image_size": 64, "depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32]}, "swin":
        {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4, "patch_size": 2} | LISTED, "swinv2":
        {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4, "patch_size": 2} | LISTED,
        "textnet": None,
        "vit": None, "vit_msn": None,
    },
    "dense": {  # a class for each pixel or query
        "detr": {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "num_queries": 6,
        "backbone_config": {"model_type": "resnet", "out_features": ["stage4"], "embedding_size": 8} | STAGES},
        "dpt": {"image_size": 32, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
        "neck_hidden_sizes": [8, 8, 8, 8],
        "fusion_hidden_size": 8, "is_hybrid": False}, "glpn": {"hidden_sizes": [8, 16, 16, 32],
        "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16,
        "depths": [1, 1, 1, 1], "patch_size": OMIT, "image_size": 64}, "mobilenet_v2": {"depth_multiplier": 0.25},
        "segformer": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 4],
        "decoder_hidden_size": 16, "image_size": 64}, "upernet": {"hidden_size": 16, "use_auxiliary_head": False,
        "backbone_config": {"model_type": "convnext", "out_features": ["stage1", "stage2", "stage3",
        "stage4"]} | STAGES}, "yolos": {"image_size": [32, 32],
        "num_detection_tokens": 6}, "swin2sr": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2],
        "window_size": 4, "patch_size": 1} | LISTED,
    },
    "wave": {  # a class for each recording
        "data2vec-audio": AUDIO, "hubert": AUDIO, "sew": AUDIO | {"squeeze_factor": 2},
        "sew-d": AUDIO | {"squeeze_factor": 2},
        "unispeech": AUDIO, "unispeech-sat": AUDIO, "wav2vec2": AUDIO, "wav2vec2-conformer": AUDIO,
        "wavlm": AUDIO,
    },
    "spectrum": {"audio-spectrogram-transformer": {"num_mel_bins": 16, "max_length": 32, "patch_size": 8,
        "frequency_stride": 8, "time_stride": 8}, "wav2vec2-bert": {"feature_projection_input_dim": 16},
        "whisper": {"num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 16}},
    "speech": {"whisper": {"num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 16},
    "speech_to_text":
        {"input_feat_per_channel": 16, "conv_channels": 32, "max_source_positions": 64, "max_target_positions": 64}},
    "pair": {"clip": None, "siglip": None, "chinese_clip": None, "altclip": None, "groupvit": None, "vilt": None,
    "blip": None},
    "video": {"timesformer": None, "videomae": {"tubelet_size": 2}, "vivit": None},
    "series": {"patchtst": {"num_targets": 4}, "patchtsmixer": {"num_targets": 4}},
}

# module of timm: (model, side of the images, options of its constructor)
TIMM = {
    "beit": ("beit_base_patch16_224", 32, {"embed_dim": 32, "depth": 2, "num_heads": 4}),
    "byoanet": ("lambda_resnet26rpt_256", 256, {}), "byobnet": ("test_byobnet", 64, {}),
    "cait": ("cait_xxs24_224", 32, {"embed_dim": 32, "depth": 2, "num_heads": 4}),
    "coat": ("coat_lite_tiny", 64, {}), "convit": ("convit_tiny", 64, {"depth": 2, "local_up_to_layer": 1}),
    "convmixer": ("convmixer_768_32", 32, {}), "convnext": ("test_convnext", 64, {}),
    "cpubone": ("cpubone_nano", 64, {}), "csatv2": ("csatv2", 64, {}), "cspnext": ("cspnext_tiny", 64, {}),
    "efficientvim": ("efficientvim_m1", 64, {}), "hieradet_sam2": ("hieradet_small", 64, {}),
    "iformer": ("iformer_t", 64, {}),
    "lcnetv2": ("lcnetv2_small", 64, {}), "lowformer": ("lowformer_b0", 64, {}),
    "mobilenetv5": ("mobilenetv5_base", 64, {}),
    "naflexvit": ("naflexvit_base_patch16_gap", 0, {"embed_dim": 32, "depth": 2, "num_heads": 4}),
    "deepseek_vit": ("deepseek_vit_412m", 0, {"embed_dim": 64, "depth": 2, "num_heads": 4}),
    "gemma4_vit": ("gemma4_vit_167m", 96, {"embed_dim": 64, "depth": 2, "num_heads": 4}),
    "qwen3_vit": ("qwen3_vit_88m", 0, {"embed_dim": 64, "depth": 2, "num_heads": 4}),
    "crossvit": ("crossvit_tiny_240", 240, {}), "cspnet": ("cspresnet50", 64, {}), "davit": ("davit_tiny", 64, {}),
    "deit": ("deit_tiny_distilled_patch16_224", 32, {"embed_dim": 32, "depth": 2, "num_heads": 4}),
    "densenet": ("densenet121", 64, {"growth_rate": 8, "block_config": (2, 2, 2, 2)}), "dla": ("dla46_c", 64, {}),
    "dpn": ("dpn48b", 64, {}), "edgenext": ("edgenext_xx_small", 64, {}),
    "efficientformer": ("efficientformer_l1", 224, {}), "efficientformer_v2": ("efficientformerv2_s0", 224, {}),
    "efficientnet": ("test_efficientnet", 64, {}), "efficientvit_mit": ("efficientvit_b0", 64, {}),
    "efficientvit_msra": ("efficientvit_m0", 224, {}), "eva": ("eva02_tiny_patch14_224", 28,
    {"embed_dim": 48, "depth": 2,
    "num_heads": 4}), "fasternet": ("fasternet_t0", 64, {}), "fastvit": ("fastvit_t8", 64, {}),
    "focalnet": ("focalnet_tiny_srf", 64, {}), "gcvit": ("gcvit_xxtiny", 224, {}),
    "ghostnet": ("ghostnet_050", 64, {}), "hardcorenas": ("hardcorenas_a", 64, {}), "hgnet": ("hgnetv2_b0", 64, {}),
    "hiera": ("hiera_tiny_224", 224, {"embed_dim": 16, "stages": (1, 1, 1, 1)}), "hrnet": ("hrnet_w18_small", 64, {}),
    "inception_next": ("inception_next_atto", 64, {}), "inception_resnet_v2": ("inception_resnet_v2", 96, {}),
    "inception_v3": ("inception_v3", 96, {}), "inception_v4": ("inception_v4", 96, {}),
    "levit": ("levit_128s", 224, {}), "mambaout": ("mambaout_femto", 64, {"depths": (1, 1, 1, 1)}),
    "maxxvit": ("test_maxvit", 0, {}), "metaformer": ("poolformerv2_s12", 64, {}),
    "mlp_mixer": ("mixer_s32_224", 64, {}), "mobilenetv3": ("mobilenetv3_small_050", 64, {}),
    "mobilevit": ("mobilevit_xxs", 64, {}), "mvitv2": ("mvitv2_tiny", 64, {}),
    "nasnet": ("nasnetalarge", 96, {}), "nest": ("nest_tiny", 0, {}), "nextvit": ("nextvit_small", 64, {}),
    "nfnet": ("test_nfnet", 0, {}), "pit": ("pit_ti_224", 224, {}), "pnasnet": ("pnasnet5large", 96, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {}), "rdnet": ("rdnet_tiny", 64, {}), "regnet": ("regnetx_002", 64, {}),
    "repghost": ("repghostnet_050", 64, {}), "repvit": ("repvit_m0_9", 64, {}), "res2net": ("res2net50_14w_8s", 64, {}),
    "resnest": ("resnest14d", 64, {}), "resnet": ("test_resnet", 64, {}), "resnetv2": ("resnetv2_50x1_bit", 64, {}),
    "rexnet": ("rexnetr_100", 64, {}), "selecsls": ("selecsls42", 64, {}),
    "senet": ("legacy_seresnet18", 64, {}), "sequencer": ("sequencer2d_s", 224, {"layers": (1, 1, 1, 1)}),
    "shvit": ("shvit_s1", 64, {}), "sknet": ("skresnet18", 64, {}), "starnet": ("starnet_s050", 64, {}),
    "swiftformer": ("swiftformer_xs", 64, {}), "swin_transformer": ("swin_tiny_patch4_window7_224", 224,
    {"embed_dim": 16, "depths": (1, 1, 2, 1), "num_heads": (1, 2, 4, 8)}), "swin_transformer_v2":
    ("swinv2_tiny_window8_256", 256, {"embed_dim": 16, "depths": (1, 1, 2, 1), "num_heads": (1, 2, 4, 8)}),
    "swin_transformer_v2_cr": ("swinv2_cr_tiny_ns_224", 224, {"embed_dim": 16, "depths": (1, 1, 2, 1),
    "num_heads": (1, 2, 4, 8)}), "tiny_vit": ("tiny_vit_5m_224", 224, {}),
    "tnt": ("tnt_s_legacy_patch16_224", 64, {"depth": 2}),
    "tresnet": ("tresnet_m", 64, {}), "twins": ("twins_svt_small", 64, {}), "vgg": ("vgg11", 64, {"mlp_ratio": 0.0625}),
    "visformer": ("visformer_tiny", 64, {}), "vision_transformer": ("test_vit", 0, {}),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", 64, {"depth": 2}), "vision_transformer_relpos":
    ("vit_relpos_small_patch16_224", 64, {"embed_dim": 32, "depth": 2, "num_heads": 4}), "vision_transformer_sam":
    ("samvit_base_patch16", 64, {"embed_dim": 32, "depth": 2, "num_heads": 4, "global_attn_indexes": (1,)}),
    "vitamin": ("vitamin_small_224", 64, {}), "volo": ("volo_d1_224", 64, {}), "vovnet": ("vovnet39a", 64, {}),
    "xception": ("legacy_xception", 64, {}), "xception_aligned": ("xception41", 64, {}),
    "xcit": ("xcit_nano_12_p16_224", 64, {"embed_dim": 32, "depth": 2, "num_heads": 4}),
}
