package kernels

import (
	"regexp"
	"slices"
	"strings"
)

// dtypeNames maps the words that spell a data type, in lower case, to its usual name.
var dtypeNames = map[string]string{
	"bfloat16": "bf16", "bf16": "bf16", "df16b": "bf16", "half": "f16", "fp16": "f16", "f16": "f16", "df16": "f16",
	"tf32": "tf32", "float": "f32", "fp32": "f32", "f32": "f32", "double": "f64", "fp64": "f64", "f64": "f64",
	"e4m3": "fp8", "e5m2": "fp8", "e4m3fn": "fp8", "e4m3fnuz": "fp8", "fp8": "fp8", "f8": "fp8", "mxfp8": "fp8",
	"e2m1": "fp4", "fp4": "fp4", "nvfp4": "fp4", "mxfp4": "fp4", "int8": "int8", "s8s8": "int8", "i8i8": "int8",
}

// dtypeInside are the spellings distinctive enough to be found inside a longer word, as in MxE4m3 or ptrbf16gmem.
var dtypeInside = []string{"bfloat16", "bf16", "e4m3", "e5m2", "e2m1", "nvfp4", "mxfp4", "tf32", "fp16", "fp8", "f32f32", "f16f16"}

var (
	tileToken = regexp.MustCompile(`(?i)(?:tilesize|_mt)?(\d{1,4}x\d{1,4}(?:x\d{1,4})?)`)
	// Architecture and packaging words that begin a library's kernel name and say nothing about what it does.
	archWord  = regexp.MustCompile(`^(sm\d+[a-z]?|ampere|volta|turing|hopper|maxwell|pascal|kepler|blackwell|cutlass|cutlass3x|cudnn)$`)
	noiseWord = regexp.MustCompile(`^(sm\d+[a-z]?|ampere|volta|turing|hopper|maxwell|pascal|kepler|blackwell|cutlass|cutlass3x|cudnn|generated|fort|native|tensorop|wmma|simt|\d+)$`)
	// A word at which a library's kernel name turns from what it does to how it does it.
	detailWord = regexp.MustCompile(`^(\d.*|.*\d+x\d+.*|tilesize.*|[bt]?f\d+.*|fp\d+|bf16.*|e\dm\d.*|int8|[nt]{2,3}|sm\d+.*|[st]8.*)$`)
	identifier = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	nvjetTypes = regexp.MustCompile(`^nvjet_(?:sm\d+_)?([a-z]+)_`)
	tensile    = regexp.MustCompile(`Cijk_[A-Za-z]+_[A-Za-z]+_((?:F8|B8|I8|H|B|S|D|I|C|Z)+)`)
	cuteDSL    = regexp.MustCompile(`^kernel_cutlass_(?:kernel_)?(.+?)_?object_at`)
	blasLetter = regexp.MustCompile(`^([shd])(?:gemm|gemv|symm)`)
	blasTypes  = map[string]string{"s": "f32", "h": "f16", "d": "f64"}
	splitCase  = regexp.MustCompile(`(?:kernels|kernel)?([A-Z][A-Za-z0-9]+)$`)
)

// plumbing: identifiers among template arguments that wrap the one that names the operation.
var plumbing = map[string]bool{}

func init() {
	for _, w := range strings.Fields(`at native c10 std cuda cub thrust detail templates memory internal binary_internal binary
		ReduceOp func_wrapper_t gpu_kernel_impl_nocast gpu_kernel_impl BinaryFunctor AUnaryFunctor BUnaryFunctor UnaryFunctor
		TensorIteratorBase TensorIterator TensorBase Tensor TensorInfo TensorListMetadata CUDAGeneratorImpl OpaqueType array
		TrivialOffsetCalculator OffsetCalculator LoadWithoutCast StoreWithoutCast LoadWithCast StoreWithCast lambda operator const
		unsigned signed int long short char bool float double void Half BFloat16 complex plus integral_constant true false
		normal_and_transform uniform_and_transform random_kernel ul u l uint32_t int32_t int64_t uint64_t size_t uint8_t half
		cutlass gemm kernel collective arch cute tuple C flash hstu enable_sm90 enable_sm80 enable_sm90_or_later enable_sm80_to_sm89
		enable_sm100 enable_if ck_tile ck aiter vllm GemmSpatiallyLocalTilePartitioner __half __nv_bfloat16 __hip_bfloat16 bfloat16_t half_t
		moe machete transform_iterator counting_iterator IteratorB IteratorA fmha device tensor_operation element_wise thread threadblock conv`) {
		plumbing[w] = true
	}
}

// maxTyped bounds how much of a symbol is searched for data types: the first ones say it.
const maxTyped = 512

// types lists the data types named in lower-case text, in order, each once.
func types(text string) []string {
	if len(text) > maxTyped {
		text = text[:maxTyped]
	}
	var out []string
	add := func(t string) {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	for _, word := range strings.FieldsFunc(text, notAlphanumeric) {
		if t, ok := dtypeNames[word]; ok {
			add(t)
			continue
		}
		for _, d := range dtypeInside {
			if strings.Contains(word, d) {
				if t, ok := dtypeNames[d]; ok {
					add(t)
				} else {
					add(d[:len(d)/2])
				}
				break
			}
		}
	}
	return out
}

func notAlphanumeric(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9')
}

// mainType picks the type that tells kernels apart: accumulators and scales are f32 almost everywhere.
func mainType(list []string) string {
	for _, t := range list {
		if t != "f32" && t != "f64" {
			return t
		}
	}
	if len(list) > 0 {
		return list[0]
	}
	return ""
}

func shorten(s symbol, r rule) string {
	label, typ := automatic(s)
	if r.label != "" {
		label = strings.ReplaceAll(r.label, "{base}", functionName(s.base))
		label = strings.TrimSpace(strings.ReplaceAll(label, "{op}", operation(s)))
	}
	short := printable(label)
	if typ != "" && !slices.Contains(strings.FieldsFunc(short, isSeparator), typ) {
		if len(short)+1+len(typ) > MaxShort {
			short = short[:MaxShort-1-len(typ)]
		}
		short += " " + typ
	}
	short = strings.TrimSpace(short)
	if len(short) > MaxShort {
		short = short[:MaxShort]
	}
	if short == "" {
		return "(unnamed)"
	}
	return short
}

func isSeparator(r rune) bool { return r == ' ' || r == '_' }

// automatic derives a label and a data type from the symbol alone.
func automatic(s symbol) (label, typ string) {
	if m := nvjetTypes.FindStringSubmatch(s.base); m != nil {
		return "nvjet gemm", nvjetType(m[1])
	}
	if m := tensile.FindStringSubmatch(s.base); m != nil {
		return "Tensile gemm", tensileType(m[1])
	}
	if m := cuteDSL.FindStringSubmatch(s.base); m != nil {
		name := m[1]
		if c := splitCase.FindStringSubmatch(name); c != nil {
			name = c[1]
		}
		return "CuTe " + functionName(name), mainType(types(strings.ToLower(s.base[len(m[0]):])))
	}
	typ = mainType(types(s.subject[s.pathLen-len(s.base):]))
	switch strings.ToLower(s.base) {
	case "kernel", "kernel2", "device_kernel", "kentry", "_5x_cudnn":
		if !strings.HasPrefix(s.path, "cutlass") && !strings.HasPrefix(s.path, "ck") && s.path != s.base { // gemvx::kernel
			return strings.TrimSuffix(s.path, "::"+s.base), typ
		}
		if op := operation(s); op != "" {
			return op, typ
		}
	}
	label = functionName(s.base)
	if typ == "" {
		if m := blasLetter.FindStringSubmatch(label); m != nil {
			typ = blasTypes[m[1]]
		}
	}
	return label, typ
}

// functionName is a function's own name without the words that every kernel's name has.
func functionName(base string) string {
	if s := strings.TrimPrefix(base, "triton_"); s != base {
		s = strings.Replace(s, "_fused_", " ", 1)
		return "triton " + strings.Replace(s, "  ", " ", 1)
	}
	if strings.HasPrefix(base, "nccl") || strings.HasPrefix(base, "rccl") {
		return strings.NewReplacer("ncclDevKernel_", "nccl ", "ncclKernel_", "nccl ", "ncclSymkDevKernel_", "nccl sym ",
			"ncclSymDevKernel_", "nccl sym ").Replace(base)
	}
	if first, _, several := strings.Cut(base, "_"); several && (archWord.MatchString(first) || tileToken.MatchString(base)) {
		if s := libraryName(base); s != "" {
			return s
		}
	}
	return trimKernel(base)
}

// libraryName shortens names such as sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_…: what stands before the
// data types and tile sizes, without the architecture.
func libraryName(base string) string {
	words := strings.Split(base, "_")
	lib := ""
	details, i := 0, 0
	for ; i < len(words); i++ {
		w := strings.ToLower(words[i])
		if strings.HasPrefix(w, "cutlass") || w == "cudnn" {
			lib = strings.TrimSuffix(w, "3x")
		}
		if w == "" || noiseWord.MatchString(w) {
			continue
		}
		if !detailWord.MatchString(w) {
			break
		}
		details++
	}
	var kept []string
	for ; i < len(words); i++ {
		w := strings.ToLower(words[i])
		if detailWord.MatchString(w) {
			details++
			break
		}
		if w != "" {
			kept = append(kept, words[i])
		}
	}
	if len(kept) == 0 || (details == 0 && lib == "") {
		return ""
	}
	name := trimKernel(strings.Join(kept, "_"))
	if lib != "" {
		name = lib + " " + name
	}
	return name
}

func trimKernel(name string) string {
	for _, suffix := range []string{"_kernel_impl", "_kernel", "Kernel_", "Kernel", "_impl", "_entry"} {
		if s := strings.TrimSuffix(name, suffix); s != name && len(s) > 2 {
			name = s
			break
		}
	}
	return strings.Trim(name, "_")
}

// operation is the functor or inner kernel that a generic kernel's template arguments name.
func operation(s symbol) string {
	for _, span := range identifier.FindAllStringIndex(s.args, 96) {
		id := s.args[span[0]:span[1]]
		if span[0] > 0 && s.args[span[0]-1] >= '0' && s.args[span[0]-1] <= '9' {
			continue // the suffix of a number: 2ul
		}
		if plumbing[id] || strings.HasPrefix(id, "THRUST_") || strings.HasPrefix(id, "enable_sm") {
			continue
		}
		if strings.HasPrefix(id, "cutlass_") {
			if name := libraryName(id); name != "" {
				return name
			}
		}
		name := id
		for _, suffix := range []string{"_kernel_cuda", "_kernel_impl", "CUDAKernelImpl", "KernelImpl", "_cuda_out", "_kernel", "_cuda",
			"Functor", "_functor", "FunctorOnSelf", "Ops", "Kernel"} {
			if t := strings.TrimSuffix(name, suffix); t != name && t != "" {
				name = t
				break
			}
		}
		name = strings.TrimPrefix(name, "CUDAFunctor")
		name = strings.Trim(name, "_")
		if name == "" {
			continue
		}
		if strings.HasPrefix(s.path, "at::native") || strings.Contains(s.base, "elementwise") {
			name = strings.ToLower(name)
		}
		return name
	}
	return ""
}

// nvjetType reads cuBLAS's type letters: operand first, accumulator and result after it.
func nvjetType(letters string) string {
	switch {
	case strings.HasPrefix(letters, "qq"):
		return "fp8"
	case letters[0] == 't':
		return "bf16"
	case letters[0] == 'h':
		return "f16"
	case letters[0] == 's':
		return "f32"
	case letters[0] == 'd':
		return "f64"
	}
	return ""
}

// tensileType reads the problem type of a Tensile name: operand type first.
func tensileType(letters string) string {
	switch {
	case strings.HasPrefix(letters, "F8"), strings.HasPrefix(letters, "B8"):
		return "fp8"
	case strings.HasPrefix(letters, "I8"):
		return "int8"
	case letters[0] == 'H':
		return "f16"
	case letters[0] == 'B':
		return "bf16"
	case letters[0] == 'S':
		return "f32"
	case letters[0] == 'D':
		return "f64"
	}
	return ""
}

// printable replaces everything outside printable ASCII.
func printable(s string) string {
	clean := true
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < ' ' || r > '~' {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}
