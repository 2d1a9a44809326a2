package kernels

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/golden.tsv")

type weighted struct {
	symbol string
	micros int
}

// readH200 reads what a PyTorch profiler saw on an H200: microseconds, count, name.
func readH200(t testing.TB) []weighted {
	var out []weighted
	for _, line := range readLines(t, "h200.txt") {
		fields := strings.SplitN(line, " ", 3)
		micros, err := strconv.Atoi(fields[0])
		if err != nil || len(fields) != 3 {
			t.Fatalf("h200.txt: bad line %q", line)
		}
		out = append(out, weighted{fields[2], micros})
	}
	return out
}

func readEngines(t testing.TB) (symbols []string, want map[string]Category) {
	want = make(map[string]Category)
	for _, line := range readLines(t, "engines.tsv") {
		category, symbol, ok := strings.Cut(line, "\t")
		if !ok {
			t.Fatalf("engines.tsv: bad line %q", line)
		}
		symbols = append(symbols, symbol)
		want[symbol] = Category(category)
	}
	return symbols, want
}

func readLines(t testing.TB, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if line := sc.Text(); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestGolden pins category and short name of every known symbol, each list named as one view.
func TestGolden(t *testing.T) {
	var lines []string
	add := func(symbols []string) {
		names := Names(symbols)
		for _, s := range symbols {
			k := names[s]
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s", k.Category, k.Short, s))
		}
	}
	var h200 []string
	for _, w := range readH200(t) {
		h200 = append(h200, w.symbol)
	}
	add(h200)
	engines, _ := readEngines(t)
	add(engines)
	if *update {
		head := "# category, short name, symbol; rewritten by go test -update\n"
		if err := os.WriteFile(filepath.Join("testdata", "golden.tsv"), []byte(head+strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	golden := readLines(t, "golden.tsv")
	if len(golden) != len(lines) {
		t.Errorf("golden.tsv has %d names, want %d", len(golden), len(lines))
	}
	for i := range min(len(golden), len(lines)) {
		if golden[i] != lines[i] {
			t.Errorf("got  %.200s\nwant %.200s", lines[i], golden[i])
		}
	}
}

func TestEngineCategories(t *testing.T) {
	symbols, want := readEngines(t)
	seen := make(map[Category]int)
	for _, s := range symbols {
		k := Describe(s)
		if k.Category != want[s] {
			t.Errorf("%s: category %q, want %q", s, k.Category, want[s])
		}
		seen[k.Category]++
	}
	for _, w := range readH200(t) {
		seen[Describe(w.symbol).Category]++
	}
	for _, c := range Categories {
		if seen[c] == 0 {
			t.Errorf("no example of category %q", c)
		}
	}
}

func TestLittleTimeInOther(t *testing.T) {
	total, other := 0, 0
	for _, w := range readH200(t) {
		total += w.micros
		if Describe(w.symbol).Category == Other {
			other += w.micros
		}
	}
	if share := float64(other) / float64(total); share > 0.05 {
		t.Errorf("%.1f %% of the GPU time is in %q, want at most 5 %%", 100*share, Other)
	}
}

func TestNamesAreDistinctPrintableAndShort(t *testing.T) {
	symbols, _ := readEngines(t)
	for _, w := range readH200(t) {
		symbols = append(symbols, w.symbol)
	}
	// A profile of one library, in which only configuration differs.
	for _, tile := range []string{"64x64", "64x128", "128x64", "128x128"} {
		for _, layout := range []string{"TNT", "NNT", "TNN"} {
			symbols = append(symbols, fmt.Sprintf("nvjet_tst_%s_64x8_2x1_v_bz_%s", tile, layout))
		}
	}
	for i := range 200 {
		symbols = append(symbols, strings.Repeat("long_name_", 30)+strconv.Itoa(i))
	}
	checkNames(t, symbols)
}

func checkNames(t *testing.T, symbols []string) {
	t.Helper()
	names := Names(symbols)
	owner := make(map[string]string)
	for _, s := range symbols {
		k := names[s]
		if k.Short == "" || len(k.Short) > MaxShort {
			t.Errorf("%.100q: short name %q has %d columns, want 1 to %d", s, k.Short, len(k.Short), MaxShort)
		}
		if strings.TrimFunc(k.Short, func(r rune) bool { return r >= ' ' && r <= '~' }) != "" {
			t.Errorf("%.100q: short name %q is not printable ASCII", s, k.Short)
		}
		if first, ok := owner[k.Short]; ok && first != s {
			t.Errorf("%q names both\n  %.150q\n  %.150q", k.Short, first, s)
		}
		owner[k.Short] = s
	}
}

func TestNamesDoNotDependOnOrder(t *testing.T) {
	symbols, _ := readEngines(t)
	reversed := make([]string, len(symbols))
	for i, s := range symbols {
		reversed[len(symbols)-1-i] = s
	}
	a, b := Names(symbols), Names(reversed)
	for _, s := range symbols {
		if a[s].Short != b[s].Short {
			t.Errorf("%.100s: %q or %q", s, a[s].Short, b[s].Short)
		}
	}
}

// A word longer than a short name tells nothing apart, and a shorter one may.
func TestNamesDifferInALongWord(t *testing.T) {
	long := strings.Repeat("a", MaxShort)
	checkNames(t, []string{"void gather_kernel<" + long + ">()", "void gather_kernel<" + long + "b>()"})
	names := Names([]string{"void gather_kernel<" + long + ", x>()", "void gather_kernel<" + long + "b, y>()"})
	for symbol, k := range names {
		if k.Short != "gather x" && k.Short != "gather y" {
			t.Errorf("%s: %q", symbol, k.Short)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, tc := range []struct {
		symbol   string
		category Category
		short    string
	}{
		{"sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma", MatrixMultiply, "xmma_gemm f32"},
		{"nvjet_hsh_128x128_64x6_2x1_v_bz_NNT", MatrixMultiply, "nvjet gemm f16"},
		{"Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI16x16x16x1.kd", MatrixMultiply, "Tensile gemm f16"},
		// Mangled, demangled, and cut off in the middle.
		{"_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16EEEvPT_S4_PKS3_fii", Normalization, "fused_add_rms_norm bf16"},
		{"void vllm::fused_add_rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16*)", Normalization, "fused_add_rms_norm bf16"},
		{"_ZN4vllm25fused_add_rms_norm_kernelIN3c108BFloat16EEEvP", Normalization, "fused_add_rms_norm bf16"},
		{"_Z6gemm_aPKfS0_Pf", MatrixMultiply, "gemm_a"},
		{"frame_007", Other, "frame_007"},
		{"", Other, "(unnamed)"},
		{"\x1b[2Jclear\x07", Other, "?[2Jclear?"},
		{"ümläut 核 🚀", Other, "?"},
		{"quote\"back\\slash", Other, "quote\"back\\slash"},
		{"<a>&b", Other, "<a>&b"},
	} {
		k := Describe(tc.symbol)
		if k.Category != tc.category || k.Short != tc.short {
			t.Errorf("%q: got %s, %q; want %s, %q", tc.symbol, k.Category, k.Short, tc.category, tc.short)
		}
		if k.Symbol != tc.symbol {
			t.Errorf("%q: symbol became %q", tc.symbol, k.Symbol)
		}
	}
}

// A mangled symbol that is longer than any writer sends is read like one that was cut.
func TestLongMangledSymbols(t *testing.T) {
	for n, demangled := range map[int]string{100: "f_gemm(int" + strings.Repeat("*", 100) + ")", maxMangled: "f_gemm"} {
		if k := Describe("_Z6f_gemm" + strings.Repeat("P", n) + "i"); k.Demangled != demangled || k.Short != "f_gemm" || k.Category != MatrixMultiply {
			t.Errorf("%d pointers: %.200q, %q, %s", n, k.Demangled, k.Short, k.Category)
		}
	}
}

func TestBadTables(t *testing.T) {
	for text, want := range map[string]string{
		"attention":                  "tab-separated",
		"attention\ta\tb\tc":         "tab-separated",
		"dancing\tfoo":               "unknown category",
		"attention\tfoo||bar":        "bad pattern",
		"attention\tFoo":             "bad pattern",
		"# comment\n\nrandom\ta*\tx": "line 3",
	} {
		if _, err := parseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestAbbreviations(t *testing.T) {
	seen := make(map[string]Category)
	for _, c := range Categories {
		a := c.Abbreviation()
		if a == "" || len(a) > 6 {
			t.Errorf("%q abbreviates to %q", c, a)
		}
		if d, ok := seen[a]; ok {
			t.Errorf("%q and %q both abbreviate to %q", c, d, a)
		}
		seen[a] = c
	}
}

func FuzzNames(f *testing.F) {
	symbols, _ := readEngines(f)
	for i := 0; i+1 < len(symbols); i += 7 {
		f.Add(symbols[i], symbols[i+1])
	}
	f.Add("_ZN9999999999999999999", "_ZNI1aE")
	f.Add("void <<<<((((", "a<b>::c<d>(e)::f")
	f.Add("void f<"+strings.Repeat("a", MaxShort)+">()", "void f<"+strings.Repeat("b", MaxShort)+">()")
	f.Fuzz(func(t *testing.T, a, b string) {
		checkNames(t, []string{a, b})
		names, reversed, apart := Names([]string{a, b}), Names([]string{b, a}), map[string]Kernel{a: Describe(a), b: Describe(b)}
		Resolve(apart)
		for _, s := range []string{a, b} {
			if k := names[s]; k.Short != reversed[s].Short || k.Short != apart[s].Short || k.Symbol != s || k.Category.Abbreviation() == "" {
				t.Errorf("%q is %q, in the other order %q, described before %q", s, k.Short, reversed[s].Short, apart[s].Short)
			}
		}
	})
}

func BenchmarkDescribe(b *testing.B) {
	list := readH200(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, w := range list {
			Describe(w.symbol)
		}
	}
}
