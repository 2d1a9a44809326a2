// Package kernels turns GPU kernel symbols into what a person recognises: a category and a short name.
//
// A symbol is demangled and taken apart (symbol.go), looked up in the table of rules in taxonomy.tsv (rules.go) and
// shortened (shortname.go). Names shown together are told apart by Names (unique.go). Symbols are foreign bytes: any
// input gives an answer, in bounded time, and names are printable ASCII.
package kernels

// Category says what a kernel is for.
type Category string

// The categories, in the order in which summaries of equal weight list them.
const (
	Attention      Category = "attention"
	MatrixMultiply Category = "matrix multiply"
	Communication  Category = "communication"
	KVCache        Category = "KV cache"
	Quantization   Category = "quantization"
	Normalization  Category = "normalization"
	Sampling       Category = "sampling"
	MemoryMovement Category = "memory movement"
	Elementwise    Category = "elementwise"
	Embedding      Category = "embedding"
	MoE            Category = "mixture of experts"
	Convolution    Category = "convolution"
	Reduction      Category = "reduction/sort"
	Random         Category = "random"
	Other          Category = "other"
)

// Categories lists every category once.
var Categories = []Category{
	Attention, MatrixMultiply, Communication, KVCache, Quantization, Normalization, Sampling, MemoryMovement,
	Elementwise, Embedding, MoE, Convolution, Reduction, Random, Other,
}

var abbreviations = map[Category]string{
	Attention: "attn", MatrixMultiply: "gemm", Communication: "comm", KVCache: "kv", Quantization: "quant",
	Normalization: "norm", Sampling: "sample", MemoryMovement: "copy", Elementwise: "elem", Embedding: "embed",
	MoE: "moe", Convolution: "conv", Reduction: "reduce", Random: "random", Other: "other",
}

// Abbreviation is the category in at most 6 columns.
func (c Category) Abbreviation() string {
	if a, ok := abbreviations[c]; ok {
		return a
	}
	return abbreviations[Other]
}

// MaxShort is the greatest width of a short name, in columns (all of one byte).
const MaxShort = 48

// Kernel is one described symbol.
type Kernel struct {
	Symbol    string   // as given
	Demangled string   // Symbol without Itanium mangling; Symbol itself where there is none or it cannot be undone
	Category  Category // what it is for
	Short     string   // at most MaxShort printable ASCII characters, never empty

	parsed symbol
}

// Describe names one symbol on its own. Two symbols may get the same short name: see Names.
func Describe(raw string) Kernel {
	p := parse(raw)
	r := match(p)
	return Kernel{
		Symbol:    raw,
		Demangled: p.full,
		Category:  r.category,
		Short:     shorten(p, r),
		parsed:    p,
	}
}
