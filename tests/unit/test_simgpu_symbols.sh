#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# File names, SONAMEs, symbol versions, addresses and first instructions of the stand-in libraries.
set -eu
libs=$1
fail() { echo "FAIL: $*" >&2; exit 1; }

for file in libcudart.so.11.0 libcudart.so.12 libcudart.so.13 libcuda.so.1 libnccl.so.2 libnvidia-ml.so.1; do
    readelf -dW "$libs/$file" | grep -q "SONAME.*\[$file\]" || fail "$file has another SONAME"
    readelf -nW "$libs/$file" | grep -q 'Build ID' || fail "$file has no build id"
    if readelf -dW "$libs/$file" | grep -q 'lib[at]san\|libubsan'; then fail "$file links a sanitizer"; fi
done

readelf -W --dyn-syms "$libs/libcudart.so.12" | grep -q ' cudaMalloc@@libcudart.so.12$' || fail "cudart version node"
if readelf -W --dyn-syms "$libs/libcuda.so.1" | grep -q ' cuMemAlloc_v2@@'; then fail "libcuda has a version node"; fi

# Every name that tests and agent rely on, variants included.
for name in cudaLaunchKernel cudaLaunchKernel_ptsz __cudaLaunchKernel cudaLaunchKernelExC cudaMalloc cudaFree \
    cudaMallocAsync cudaFreeAsync cudaHostAlloc cudaFreeHost cudaMemcpy cudaMemcpy_ptds cudaMemcpyAsync \
    cudaMemcpyAsync_ptsz cudaMemcpy2DAsync cudaMemcpyPeerAsync cudaMemset cudaMemsetAsync cudaStreamCreate \
    cudaStreamDestroy cudaStreamSynchronize cudaStreamSynchronize_ptsz cudaDeviceSynchronize cudaEventCreate \
    cudaEventRecord cudaEventSynchronize cudaEventQuery cudaStreamWaitEvent cudaSetDevice cudaGetDeviceCount \
    cudaSetDeviceFlags cudaGetLastError cudaGetErrorString cudaStreamBeginCapture cudaStreamEndCapture \
    cudaGraphInstantiate cudaGraphLaunch cudaGraphLaunch_ptsz __cudaRegisterFatBinary __cudaRegisterFunction \
    __cudaPushCallConfiguration __cudaGetKernel; do
    readelf -W --dyn-syms "$libs/libcudart.so.12" | grep -q " $name@@" || fail "cudart lacks $name"
done
for name in cuInit cuGetProcAddress cuGetProcAddress_v2 cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx \
    cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemAllocAsync_ptsz cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds \
    cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2 cuMemsetD8Async cuMemCreate cuStreamSynchronize \
    cuStreamSynchronize_ptsz cuCtxSynchronize cuEventSynchronize cuEventRecord cuStreamWaitEvent \
    cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphLaunch cuGraphInstantiateWithFlags; do
    readelf -W --dyn-syms "$libs/libcuda.so.1" | grep -q " $name\$" || fail "libcuda lacks $name"
done

# No two exported functions of cudart or libcuda share an address; each ncclX shares one with its pncclX.
for file in libcudart.so.11.0 libcudart.so.12 libcudart.so.13 libcuda.so.1; do
    twice=$(readelf -W --dyn-syms "$libs/$file" | awk '$4 == "FUNC" && $7 != "UND" {print $2}' | sort | uniq -d)
    [ -z "$twice" ] || fail "$file: two names at $twice"
done
readelf -W --dyn-syms "$libs/libnccl.so.2" | awk '
    $4 == "FUNC" && $7 != "UND" && $8 ~ /^p?nccl/ {at[$8] = $2; bind[$8] = $5}
    END {
        for (name in at) if (name ~ /^nccl/ && (at[name] != at["p" name] || bind[name] != "WEAK")) {print name; bad = 1}
        exit bad
    }' || fail "an ncclX is no weak alias"

# First instructions.
first() { objdump -d --no-show-raw-insn "$1" | awk -v want="$2" '
    $2 ~ /^</ && $2 !~ /@plt/ && $2 ~ want {getline; sub(/^[^\t]*\t/, ""); print}'; }
if [ "$(uname -m)" = x86_64 ]; then
    for pair in 'libcudart.so.12 ^<(cuda|__cuda)' 'libnccl.so.2 ^<p?nccl[A-Z]' 'libnvidia-ml.so.1 ^<nvml[A-Z]'; do
        file=${pair%% *}
        total=$(first "$libs/$file" "${pair#* }" | wc -l)
        other=$(first "$libs/$file" "${pair#* }" | grep -cv '^push ' || true)
        [ "$total" -gt 20 ] || fail "$file: only $total functions"
        [ "$other" = 0 ] || fail "$file: $other of $total functions do not begin with a push"
    done
    count=0
    while read -r _ _ size type _ _ _ name; do
        case $type:$name in FUNC:cu[A-Z]*) ;; *) continue ;; esac
        [ "$size" = 30 ] || fail "$name is $size bytes long, not 30"
        count=$((count + 1))
    done < <(readelf -W --dyn-syms "$libs/libcuda.so.1")
    [ "$count" -gt 100 ] || fail "only $count driver exports"
    shape=$(objdump -d "$libs/libcuda.so.1" | awk -F '\t' '
        /^[0-9a-f]+ <cu[A-Z]/ {n++; getline; a = $2; getline; a = a $2; getline; b = $2;
        gsub(/ /, "", a); gsub(/ /, "", b); if (a ~ /^813d................$/ && b == "740c") good++}
        END {print n - good}')
    [ "$shape" = 0 ] || fail "$shape driver exports lack the cmpl + je +0x0c head"
    [ "$(first "$libs/libendbr.so" '^<cudaMalloc>' | cut -c1-7)" = endbr64 ] || fail "libendbr.so lacks endbr64"
fi
echo ok
