"""One line of each published form, and what it means, worked out by hand."""

QAI = (
    "version,date,model,component,precision,device,runtime,compute_unit,latency_ms,peak_mem_min_mb,peak_mem_max_mb,"
    "layers_total,layers_npu,layers_gpu,layers_cpu,tool_versions,job_status,job_id,device_aliases\n"
)
AIC = (
    "id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,gemm_quant_mode,"
    "moe_quant_mode,batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,prefill_batch_size,"
    "prefill_num_workers,prefill_tp_size,prefill_pp_size,prefill_attention_dp_size,prefill_moe_tp_size,"
    "prefill_moe_ep_size,decode_batch_size,decode_num_workers,decode_tp_size,decode_pp_size,decode_attention_dp_size,"
    "decode_moe_tp_size,decode_moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n"
)
MLPERF = (
    "round,division,submitter,platform,accelerator,accelerators_per_node,nodes,host_cpu,host_cpus_per_node,framework,"
    "system_type,model,scenario,result_valid,samples_per_s,tokens_per_s,scheduled_samples_per_s,target_qps,lat_mean_ns,"
    "lat_p50_ns,lat_p90_ns,lat_p99_ns,ttft_mean_ns,ttft_p50_ns,ttft_p90_ns,ttft_p99_ns,tpot_mean_ns,tpot_p50_ns,"
    "tpot_p90_ns,tpot_p99_ns,samples_per_query\n"
)
LLM = (
    "version,model,component,precision,device,runtime,compute_unit,context_length,prefill_tok_s,decode_tok_s,"
    "ttft_min_ms,ttft_max_ms,tool_versions,device_aliases\n"
)
TIMM = "file,device,precision,layout,torch,cuda,compile,model,batch,img_size,samples_per_s,step_ms,gmacs,params_m\n"

WORLD = "source,repo,path,model,device,runtime,precision,batch,input,metric,value,unit,notes\n"

# form → the text of a file, and the measurements of its second line: (what is expected of each)
GOLDEN = {
    "timm": (
        TIMM + "benchmark-infer-amp-nchw-pt113-cu117-rtx3090.csv,NVIDIA RTX 3090,amp,nchw,pt113,cu117,eager,tinynet_e,"
        "1024,106,49277.65,20.77,0.03,2.04\n",
        [{"seconds": 0.02077, "model": "timm:tinynet_e", "device": "nvidia-rtx-3090", "unit": "gpu", "batch": 1024,
          "engine": "torch-eager", "version": "1.13", "weights": "f32", "activations": "f16", "image": 106,
          "settings": {"layout": "nchw", "cuda": "11.7", "autocast": "f16"}, "macs": 0.03e9, "quantity": "forward"}],
    ),
    "qai-hub": (
        QAI + "0.65.0,,whisper_base,decoder,w8a16,Dragonwing Q-8750,onnx,NPU,7.042,0,270,412,400,0,12,"
        "onnx_runtime=1.30.0;qairt=2.50.0.260828221209,Passed,jp1,|Samsung Galaxy S25\n",
        [{"seconds": 0.007042, "model": "whisper-base/decoder", "part": "decoder", "unit": "npu",
          "engine": "onnxruntime",
          "version": "1.30.0", "weights": "i8", "activations": "i16", "memory_bytes": 270e6, "date": "2026-10",
          "settings": {"provider": "qnn", "elsewhere": "12/412", "qairt": "2.50.0"},
          "device_spelling": "Dragonwing Q-8750|Samsung Galaxy S25", "input": "80x3000 (30 seconds audio)"}],
    ),
    "qai-hub-llm": (
        LLM + "0.65.0,llama_v3_1_8b_instruct,Llama-v3.1-8B-Instruct,w4a16,Snapdragon X2 Elite CRD,geniex_qairt,npu,"
        "4096,1162.579133,19.614429,110.10003225806452,3523.2010322580645,geniex=v0.9.1;qairt=2.50,\n",
        [{"quantity": "prefill", "prompt": 3968, "context": 0, "seconds": 3968 / 1162.579133, "model": "llama-3.1-8b"},
         {"quantity": "decode", "context": 3968, "generate": 128, "seconds": 1 / 19.614429, "weights": "i4"}],
    ),
    "world": (
        WORLD + "sophgo c7c94bb 2024-10-18,sophgo/sophon-demo,sample/ResNet/README.md,ResNet/resnet50_int8_4b,"
        "SOPHGO BM1684X (SE7-32),sophon-sail bmrt_test,int8,4,,latency,1.6,ms,calculate time(ms)\n",
        [{"seconds": 4 * 1.6e-3, "model": "timm:resnet50", "device": "sophgo-bm1684x", "unit": "npu", "batch": 4,
          "engine": "sophon", "weights": "i8", "activations": "i8", "quantity": "forward", "source": "world",
          "dataset": "sophgo"}],
    ),
    "ncnn": (
        ('device,num_threads,powersave,gpu_device,loop_count,model,min_ms,max_ms,avg_ms\n'
        '"Board (Cortex-A53 1.5GHz x 4)",4,2,-1,8,mobilenet_ssd_int8,10.5,14.5,12\n'),
        [{"seconds": 0.012, "low_s": 0.0105, "high_s": 0.0145, "unit": "cpu", "image": 300, "weights": "i8",
          "settings": {"threads": "4", "powersave": "2", "loops": "8"}, "engine": "ncnn"}],
    ),
    "openvino": (
        ("date,platform,platform_type,model,metric,precision,value,unit\n"
        '2024-12-19,Intel® Core™ i7-1355U CPU+iGPU,"Intel® Core™, CPU+iGPU",yolo_v8n,throughput,int8,160,FPS\n'),
        [{"quantity": "stream", "seconds": 1 / 160, "unit": "cpu+gpu", "model": "yolov8n", "image": 640}],
    ),
    "openvino-llm": (
        ("date,platform,topology,precision,input_size,first_ms,second_ms,tok_s,max_rss\n"
        "2026-03-05,7-258V,deepseek-r1-distill-qwen-1.5b,INT4-MIXED,1024,71.3,42.3,23.64,5040.7\n"),
        [{"quantity": "prefill", "seconds": 0.0713, "prompt": 1024, "context": 0, "unit": "gpu", "weights": "i4",
          "device": "intel-core-ultra-7-258v-gpu", "model": "deepseek-r1-distill-qwen-1.5b", "memory_bytes": 5040.7e6},
         {"quantity": "decode", "seconds": 0.0423, "context": 1024}],
    ),
    "llamacpp": (
        ("source,device,backend,model,size_gib,params_b,threads,ngl,fa,test,tokens_per_s,stddev,extra\n"
        "llama.cpp/benches/x.md,NVIDIA RTX 4090,CUDA,qwen3moe 30B.A3B Q8_0,30.25,30.53,,99,1,tg32 @ d4096,80,5,\n"),
        [{"quantity": "decode", "seconds": 1 / 80, "low_s": 1 / 85, "high_s": 1 / 75, "context": 4096, "generate": 32,
          "model": "qwen3-30b-a3b", "weights": "q8_0", "source": "llama.cpp", "place": "benches/x.md",
          "weight_bytes": 30.25 * 2**30, "spread": "standard deviation"}],
    ),
    "llamacpp-batched": (
        ("device,model,pp,tg,batch,n_kv,t_pp_s,s_pp,t_tg_s,s_tg,t_s,s\n"
        "NVIDIA GB10 (DGX Spark),ggml-org/gpt-oss-20b-GGUF,512,32,4,2176,0.437,4688.87,0.820,156.03,1.257,1730.91\n"),
        [{"quantity": "prefill", "seconds": 4 * 512 / 4688.87, "batch": 4, "model": "gpt-oss-20b", "weights": "mxfp4"},
         {"quantity": "decode", "seconds": 4 / 156.03, "context": 512, "generate": 32}],
    ),
    "llamacpp-gpus": (
        "device,model,test,tokens_per_s\n3090 24GB * 2,Llama-3-70B Q4_K_M,pp1024,512\n",
        [{"quantity": "prefill", "seconds": 2.0, "count": 2, "model": "llama-3-70b", "weights": "q4_k"}],
    ),
    "mlperf": (
        MLPERF + "v4.0,closed,ASUSTeK,ESC8000_E11P_H100x8_TRT,NVIDIA H100-PCIe-80GB,8,1,Xeon,2,"
        '"TensorRT 9.3.0, CUDA 12.2",datacenter,bert-99.9,Offline,VALID,40000,,,46000,1,1,1,1,,,,,,,,,30360000\n',
        [{"quantity": "stream", "seconds": 1 / 40000, "count": 8, "model": "bert-large", "engine": "tensorrt",
          "version": "9.3.0", "model_published": "bert"}],
    ),
    "mlperf-mobile": (
        ("round,submitter,device,model,scenario,p90_ns,mean_ns,samples_per_s\n"
        "v4.1,Qualcomm,SD8G3,mobilenetV4,SingleStream,914218,837807,\n"),
        [{"quantity": "forward", "seconds": 0.000837807, "device": "qualcomm-snapdragon-8-gen-3-npu", "unit": "npu"}],
    ),
    "mlperf-tiny": (
        ("BoardName,SystemDesc,MlperfModel,Result,ResultUnit,HasPower,Power,PowerUnit\n"
        "NUCLEO-U575ZI-Q,NUCLEO_U575ZI_Q_int8,ad,250,inf./sec.,True,81.875,uJ/inf.\n"),
        [{"quantity": "forward", "seconds": 0.004, "energy_j": 81.875e-6, "weights": "i8", "unit": "cpu"}],
    ),
    "hailo": (
        ("device,task,dataset,dfc,network,fps_b1,fps_b8,input_hwc,params_m,ops_g\n"
        "HAILO8,classification,Imagenet,5.2.0.,repvgg_a1  star,2000,2500,224x224x3,12.79,4.7\n"),
        [{"quantity": "stream", "seconds": 1 / 2000, "batch": 1, "model": "timm:repvgg_a1", "device": "hailo-8",
          "macs": 2.35e9, "parameters": 12.79e6, "version": "5.2.0", "model_published": "repvgg_a1"},
         {"quantity": "stream", "seconds": 1 / 2500, "batch": 8}],
    ),
    "rknn": (
        'device,model,input_shape,dtype,fps,dtype_override\nRK3588 @single_core,yolov8n,"[1, 3, 640, 640]",INT8,50,\n',
        [{"quantity": "forward", "seconds": 0.02, "device": "rockchip-rk3588-npu", "weights": "i8", "image": 640,
          "settings": {"cores": "1"}, "model": "yolov8n"}],
    ),
    "rknn-llm": (
        ("device,model,model_size,dtype,seqlen,new_tokens,ttft_ms,tokens_per_s,memory_mb\n"
        "RK3588,Qwen2,0.5B,w4a16_g128,128,64,361.78,30.33,463.23\n"),
        [{"quantity": "prefill", "seconds": 0.36178, "prompt": 128, "model": "qwen2.5-0.5b", "weights": "i4",
          "activations": "f16", "memory_bytes": 463.23e6},
         {"quantity": "decode", "seconds": 1 / 30.33, "context": 128, "generate": 64}],
    ),
    "ultralytics": (
        ("device,model,format,imgsz,ms_per_image,doc\n"
        "NVIDIA Jetson AGX Thor Developer Kit,YOLOv8n,TensorRT (INT8),640,1.29,guides/nvidia-jetson.md\n"),
        [{"seconds": 0.00129, "engine": "tensorrt", "weights": "i8", "device": "nvidia-jetson-agx-thor", "unit": "gpu",
          "model": "yolov8n"}],
    ),
    "argonne": (
        ("Hardware,Num of Hardware,Framework,Model,Input Output Length,Batch Size,Latency,Throughput\n"
        "Nvidia A100 GPU,1,llama.cpp,meta-llama/Llama-2-7b-hf,128,16,2.330946,109.826672\n"),
        # 256 tokens in 2.33 s are 109.8 a second: one sequence, and the engine reads 16 tokens at once
        [{"quantity": "request", "seconds": 2.330946, "batch": 1, "prompt": 128, "generate": 128,
          "settings": {"chunk": "16"}, "device": "nvidia-a100-40gb", "model": "llama-2-7b", "weights": "f16"}],
    ),
    "trtllm": (
        ("date,model,gpu,precision,parallel,batch,isl,osl,metric,value\n"
        "2026-03-01,Deepseek R1 0528,GB200,FP4,DEP4,,1000,1000,output tok/s/GPU,5000\n"),
        [{"quantity": "tokens", "seconds": 1 / 20000, "count": 4, "model": "deepseek-v3", "weights": "nvfp4",
          "settings": {"dep": "4"}}],
    ),
    "rocm-vllm": (
        ("date,vllm,gpu,model,precision,tp,batch,isl,osl,num_prompts,metric,value\n"
        "2025-02-24,,AMD MI300X,Llama 3.1 405B (amd/Llama-3.1-70B-Instruct-FP8-KV),FP8,8,128,128,2048,,"
        "MI300X Latency (ms),45216.37\n"),
        [{"quantity": "request", "seconds": 45.21637, "batch": 128, "count": 8, "model": "llama-3.1-405b",
          "device": "amd-mi300x", "weights": "f8e4m3"}],
    ),
    "aiconfigurator": (
        AIC + "x,source_file=2026-04-06.csv; silicon_concurrency=32; measured=2026-03-25T00:00:00.000Z,sglang,0.5.9,"
        "deepseek-ai/DeepSeek-R1,b200_sxm,fp8,agg,1024,8192,fp8,fp8_block,32,8,1,1,8,1,,,,,,,,,,,,,,,511.8,16.7\n",
        [{"quantity": "ttft", "seconds": 0.5118, "count": 8, "concurrency": 32, "date": "2026-03-25", "batch": 32,
          "settings": {"mode": "agg", "tp": "8", "moe_tp": "8", "client": "inferencemax"},
          "model": "deepseek-v3", "weights": "f8e4m3"},
         {"quantity": "tpot", "seconds": 0.0167}],
    ),
    "phones": (
        ("source,model,device,backend,prefill_tok_s,decode_tok_s\n"
        "executorch README.md,Llama-3.2-1B SpinQuant,OnePlus 12 (see README),XNNPACK CPU,260.5,50.2\n"),
        [{"quantity": "prefill", "prompt": 64, "seconds": 64 / 260.5, "weights": "i4", "model": "llama-3.2-1b"},
         {"quantity": "decode", "context": 64, "seconds": 1 / 50.2, "device": "qualcomm-snapdragon-8-gen-3-cpu"}],
    ),
    "jetson": (
        "model,device,concurrency,tokens_per_s\nQwen 3 30B-A3B,orin,8,76.69\n",
        [{"quantity": "tokens", "seconds": 1 / 76.69, "concurrency": 8, "model": "qwen3-30b-a3b", "engine": "vllm",
          "device": "nvidia-jetson-agx-orin-64gb", "weights": "i4", "prompt": 2048, "generate": 128}],
    ),
    "geerling": (
        "model,system,unit,eval_rate,power_peak\nDeepSeek R1 14b,Intel 13900K (Nvidia 5090),GPU,19.90 Tokens/s,164W\n",
        [{"quantity": "decode", "seconds": 1 / 19.9, "power_w": 164.0, "model": "qwen2.5-14b",
          "device": "nvidia-rtx-5090", "settings": {"host": "Intel 13900K"}, "weights": "q4_k", "count": 1}],
    ),
    "vllm-requests": (
        ("device,model,vllm,tp,dp,max_num_seqs,max_num_batched_tokens,num_gpu_blocks,block_size,request_id,arrival_s,"
        "input_tokens,output_tokens,queue_ms,ttft_ms,tpot_ms,e2e_ms\n"
        "NVIDIA GeForce RTX 4090,meta-llama/Llama-3.1-8B,0.19.0,1,1,256,2048,2588,16,b-1,0.5,1034,769,0.01,302.5,32.4,"
        "25232\n"),
        [{"quantity": "ttft", "seconds": 0.3025, "prompt": 1034, "generate": 769, "model": "llama-3.1-8b"},
         {"quantity": "tpot", "seconds": 0.0324}, {"quantity": "request", "seconds": 25.232}],
    ),
    "tidy": (
        ("device,model,engine,quantity,figure,figure_unit,batch,weights,date\n"
        "raspberry-pi-5,yolov8n,litert,forward,12.5,fps,1,int8,2026-11-01\n"),
        [{"quantity": "forward", "seconds": 0.08, "device": "raspberry-pi-5", "model": "yolov8n", "weights": "i8",
          "dataset": "own"}],
    ),
}  # fmt: skip
