package screen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/graphsignal/graphsignal-collector/internal/top/endpoint"
	"github.com/graphsignal/graphsignal-collector/internal/top/model"
	"github.com/graphsignal/graphsignal-collector/internal/top/scene"
)

// fixed is a source of made-up documents.
type fixed struct {
	make func(tick int) []byte
	tick int
	err  error
}

func (f *fixed) Read(context.Context) (*endpoint.Document, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.tick++
	return endpoint.Decode(f.make(f.tick))
}

func (f *fixed) Address() string { return "http://127.0.0.1:18259/signals" }

type player struct {
	*app
	source *fixed
	clock  time.Time
}

func play(t testing.TB, scene func(int) []byte, window time.Duration, reads int) *player {
	t.Helper()
	source := &fixed{make: scene}
	p := &player{source: source, clock: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)}
	p.app = newApp(context.Background(), source, window, glyphsFor(true))
	p.now = func() time.Time { return p.clock }
	p.reads(reads)
	return p
}

func (p *player) reads(n int) {
	for range n {
		p.clock = p.clock.Add(time.Second)
		p.Update(p.read())
	}
}

func (p *player) press(keys ...tea.Key) {
	for _, k := range keys {
		if _, cmd := p.Update(tea.KeyPressMsg(k)); cmd != nil {
			p.Update(cmd())
		}
	}
}

func (p *player) typed(text string) {
	for _, r := range text {
		p.press(tea.Key{Code: r, Text: string(r)})
	}
}

func (p *player) plain() string { return render(p.screen(), false) }

// TestEverySize draws every screen at every size: it must have exactly the terminal's lines and never be wider.
func TestEverySize(t *testing.T) {
	many := func(n int) []byte { return crowded(n, 8, 250) }
	widths, heights := []int{1, 2, 7, 20, 40, 79, 80, 100, 119, 120, 200}, []int{1, 2, 3, 5, 9, 16, 24, 60}
	if testing.Short() {
		widths, heights = []int{1, 80, 160}, []int{1, 9, 24}
	}
	for name, s := range map[string]func(int) []byte{"serving": scene.Serving, "single": scene.Single, "crowded": many, "empty": empty, "hostile": hostile} {
		for _, g := range []glyphs{glyphsFor(true), glyphsFor(false)} {
			if !g.unicode && name != "hostile" {
				continue
			}
			p := play(t, s, 2*time.Second, 3)
			p.glyphs = g
			screens := map[string]func(){
				"ranking": func() {}, "graphs": func() { p.typed("g") }, "memory": func() { p.typed("m") }, "sync": func() { p.typed("s") },
				"filter": func() { p.typed("k/gemm") }, "details": func() { p.press(tea.Key{Code: tea.KeyEnter}, tea.Key{Code: tea.KeyEnter}) },
				"help": func() { p.press(tea.Key{Code: tea.KeyEscape}); p.typed("?") },
				"stale": func() {
					p.press(tea.Key{Code: tea.KeyEscape})
					p.source.err = errors.New("connection \x1b[31mrefused")
					p.reads(1)
				},
			}
			for _, step := range []string{"ranking", "graphs", "memory", "sync", "filter", "details", "help", "stale"} {
				screens[step]()
				for _, w := range widths {
					for _, h := range heights {
						p.Update(tea.WindowSizeMsg{Width: w, Height: h})
						lines := p.screen()
						if len(lines) != h {
							t.Fatalf("%s, %s: %d lines at %dx%d", name, step, len(lines), w, h)
						}
						for _, l := range lines {
							if l.width() > w {
								t.Fatalf("%s, %s: line of %d columns at %dx%d: %q", name, step, l.width(), w, h, render([]line{l}, false))
							}
							for _, s := range l {
								checkSafe(t, s.text)
							}
						}
					}
				}
			}
		}
	}
}

// checkSafe fails for text that could do more to a terminal than fill cells.
func checkSafe(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Fatalf("invalid UTF-8: %q", text)
	}
	for _, r := range text {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) {
			t.Fatalf("unsafe character %U in %q", r, text)
		}
	}
}

// crowded is a document of processes with as many kernels each as a writer lists.
func crowded(tick, processes, frames int) []byte {
	d := scene.New(tick)
	for i := range processes {
		d.GPU(i, 0.5)
		var list []scene.Frame
		for k := range frames {
			list = append(list, scene.Frame{
				Name:  fmt.Sprintf("void at::native::vectorized_elementwise_kernel<%d, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)", k),
				Value: uint64(tick) * uint64(1_000_000+1000*k), Samples: uint64(tick * 10),
			})
		}
		d.Profile("cuda_kernels_nanoseconds", map[string]string{"process.pid": fmt.Sprint(100 + i), "process.rank": fmt.Sprint(i)}, list)
	}
	d.VLLM()
	return d.JSON()
}

func empty(tick int) []byte { return scene.New(tick).JSON() }

const poison = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2028\r\nline\ttab\x00\u200b\ufeffe\u0301\u0301\u0301\u0301\u0301核🚀"

// hostile is a document in which every text is poisoned and every number extreme.
func hostile(tick int) []byte {
	d := scene.New(tick)
	d.Context = map[string]string{"host.name": poison, "instance.id": poison}
	d.Version = poison
	tags := map[string]string{"process.pid": poison, "process.rank": poison}
	d.Profile("cuda_kernels_nanoseconds", tags, []scene.Frame{
		{Name: poison, Value: 18446744073709551615, Samples: 1}, {Name: poison + "x", Value: uint64(tick), Samples: 18446744073709551615},
		{Name: "", Value: 5, Samples: 0}, {Name: strings.Repeat("w", 100_000), Value: 3, Samples: 3},
	})
	d.Profile("cuda_graphs_nanoseconds", tags, []scene.Frame{{Name: poison, Value: uint64(tick), Samples: 0}})
	d.Profile("cuda_memcpy_nanoseconds", tags, []scene.Frame{{Name: poison, Value: uint64(tick), Samples: 1}})
	d.Profile("cuda_sync_nanoseconds", tags, []scene.Frame{{Name: poison, Value: uint64(tick), Samples: 1}})
	device := map[string]string{"device.bus_id": poison}
	d.Resource("device", device, map[string]string{"device.name": poison, "mem_total": "-1"})
	for i, v := range []float64{1e308, -1e308, 1e-308, 0} {
		d.Gauge("gpu_utilization_percent", map[string]string{"device.uuid": fmt.Sprint(i)}, v)
		d.Gauge("gpu_memory_used_bytes", map[string]string{"device.uuid": fmt.Sprint(i)}, v)
		d.Gauge("gpu_power_usage_watts", map[string]string{"device.uuid": fmt.Sprint(i)}, v)
		d.Gauge("gpu_clocks_throttle_reasons", map[string]string{"device.uuid": fmt.Sprint(i)}, v)
		d.Gauge("gpu_pcie_throughput_tx_kilobytes_per_second", map[string]string{"device.uuid": fmt.Sprint(i)}, v)
	}
	d.Gauge("vllm:num_requests_running", nil, 1e308)
	d.Gauge("vllm:kv_cache_usage_perc", nil, -1e300)
	d.Counter("vllm:generation_tokens", nil, 18446744073709551615)
	d.Histogram("vllm:time_to_first_token_seconds", nil, 1, 1e308, 1e300, 1e308)
	d.Error(poison, poison+strings.Repeat("A", 1<<20), -1e6, map[string]any{"process.pid": poison, "scope.name": 7})
	d.Resource("process", map[string]string{"process.pid": poison, "process.root_pid": poison}, map[string]string{"process.command_line": poison})
	return d.JSON()
}

func TestHostilePage(t *testing.T) {
	p := play(t, hostile, time.Second, 2)
	for _, g := range []glyphs{glyphsFor(true), glyphsFor(false)} {
		for _, l := range (layout{glyphs: g, width: 160}).page(p.view, poison, p.clock, nil) {
			if l.width() > 160 {
				t.Errorf("line of %d columns", l.width())
			}
			for _, s := range l {
				checkSafe(t, s.text)
			}
		}
	}
	if strings.Contains(p.plain(), "NaN") || strings.Contains(p.plain(), "Inf") {
		t.Errorf("numbers that are none:\n%s", p.plain())
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain ~text": "plain ~text", "a\x1b[31mb": "a?[31mb", "a\nb\tc\rd": "a b c d", "\x9b5m": "?5m", "x\u009by": "x?y",
		"\u202eabc": "?abc", "zero\u200bwidth": "zero?width", "ümläut 核 🚀": "ümläut 核 🚀", "bad\xff\xfe": "bad??",
		"e\u0301\u0301\u0301\u0301": "e\u0301\u0301", "\u2028": "?", "\u00a0": "\u00a0", "\ue000": "?", "\x7f": "?",
	} {
		if got := glyphsFor(true).clean(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := glyphsFor(false).clean("ümläut"); got != "?ml?ut" {
		t.Errorf("without Unicode: %q", got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add(poison, 20)
	f.Fuzz(func(t *testing.T, s string, w int) {
		for _, g := range []glyphs{glyphsFor(true), glyphsFor(false)} {
			c := g.clean(s)
			checkSafe(t, c)
			w = max(1, min(w, 300))
			for _, cut := range []string{g.cutTo(c, w), g.middle(c, w)} {
				checkSafe(t, cut)
				if width(cut) > w {
					t.Errorf("%q is wider than %d", cut, w)
				}
			}
		}
	})
}

// FuzzScreen draws whatever documents say at any size: exactly the terminal's cells, and nothing that does more to it.
func FuzzScreen(f *testing.F) {
	d := scene.New(1)
	d.GPU(0, 0.5)
	d.Profile("cuda_kernels_nanoseconds", map[string]string{"process.pid": "7"}, []scene.Frame{{Name: poison, Value: 5, Samples: 1}})
	d.VLLM()
	d.Error("error", poison, -1, map[string]any{"process.pid": 7})
	one := d.JSON()
	f.Add(one, one, 80, 24)
	f.Add(empty(1), []byte(`{"metrics":[{"name":"cuda_graphs_nanoseconds","type":"profile","tags":{"process.pid":"\u001b"},"stats":{"frames":[{"name":"\u009b","value":18446744073709551615,"samples":1}]}}]}`), 1, 3)
	f.Add([]byte("{"), []byte(`{"payload_ns":-5,"start_ns":9223372036854775807,"metrics":[],"errors":[{"message":"\u202e","log_ns":1e300}]}`), 300, 1)
	f.Fuzz(func(t *testing.T, before, after []byte, width, height int) {
		width, height = 1+int(uint(width)%300), 1+int(uint(height)%100)
		p := play(t, func(tick int) []byte {
			if tick == 1 {
				return before
			}
			return after
		}, time.Second, 3)
		p.Update(tea.WindowSizeMsg{Width: width, Height: height})
		for _, step := range []func(){
			func() {}, func() { p.typed("g") }, func() { p.typed("m") }, func() { p.typed("k") },
			func() { p.press(tea.Key{Code: tea.KeyEnter}) }, func() { p.press(tea.Key{Code: tea.KeyEscape}); p.typed("/e") },
		} {
			step()
			lines := p.screen()
			if len(lines) != height {
				t.Fatalf("%d lines of %d", len(lines), height)
			}
			checkLines(t, lines, width)
		}
		if p.ready {
			checkLines(t, (layout{glyphs: p.glyphs, width: plainWidth}).page(p.view, string(before), p.clock, nil), plainWidth)
		}
	})
}

func checkLines(t *testing.T, lines []line, width int) {
	t.Helper()
	for _, l := range lines {
		if l.width() > width {
			t.Fatalf("line of %d columns in %d: %q", l.width(), width, render([]line{l}, false))
		}
		for _, s := range l {
			checkSafe(t, s.text)
		}
	}
}

func TestNumbers(t *testing.T) {
	value := func(v float64) model.Value { return model.Value{V: v, OK: true} }
	for _, tc := range []struct{ got, want string }{
		{count(model.Value{}), "-"}, {count(value(0)), "0"}, {count(value(0.5)), "0.50"}, {count(value(12.34)), "12.3"},
		{count(value(999)), "999"}, {count(value(999.7)), "1.00k"}, {count(value(12_345)), "12.3k"}, {count(value(1.8e19)), "18E"},
		{count(value(1e308)), "1e308"}, {count(value(-4)), "-4"},
		{nanos(value(0)), "0ns"}, {nanos(value(950)), "950ns"}, {nanos(value(1_240_000)), "1.24ms"}, {nanos(value(2.5e9)), "2.50s"},
		{nanos(value(1000e9)), "16.7m"}, {nanos(value(90_000e9)), "25h"}, {nanos(value(1e15)), "11.6d"}, {nanos(model.Value{}), "-"},
		{percent(value(0)), "0.0%"}, {percent(value(0.123)), "12.3%"}, {percent(value(1.5)), "150%"}, {percent(model.Value{}), "-"},
		{gib(value(150754820096)), "140.4"}, {perSecond(value(1.03e9)), "1.03GB/s"}, {whole(value(1979.6)), "1980"},
		{uptime(45 * time.Second), "45s"}, {uptime(725 * time.Second), "12m05s"}, {uptime(3*time.Hour + 4*time.Minute), "3h04m"}, {uptime(51 * time.Hour), "2d03h"},
		{glyphsFor(true).trend([]float64{0, 50, 100, 200}, 6, 100), "  ▁▄▇▇"}, {glyphsFor(false).trend([]float64{1, 2}, 2, 0), "=@"},
		{glyphsFor(true).middle("0123456789abcdefghij", 13), "01234567…ghij"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestSelectionFollowsTheRow(t *testing.T) {
	// The two kernels change places in the ranking from second to second.
	p := play(t, func(n int) []byte {
		d := scene.New(n)
		a, b := uint64(1000*n), uint64(1000*n)
		if n%2 == 0 {
			a += 900
		} else {
			b += 900
		}
		d.Profile("cuda_kernels_nanoseconds", nil, []scene.Frame{{Name: "alpha", Value: a, Samples: 1}, {Name: "beta", Value: b, Samples: 1}})
		return d.JSON()
	}, time.Second, 2)
	p.press(tea.Key{Code: tea.KeyDown})
	name := p.rows[p.cursor].Name
	for range 4 {
		p.reads(1)
		if got := p.rows[p.cursor].Name; got != name {
			t.Fatalf("the cursor went from %s to %s", name, got)
		}
	}
	p.press(tea.Key{Code: tea.KeyEnter})
	if got := p.plain(); !strings.HasPrefix(got, name+"\n") {
		t.Errorf("details of another row:\n%s", got)
	}
}

// A second kernel of the same short name changes the first one's; the cursor stays with the kernel.
func TestSelectionFollowsARenamedKernel(t *testing.T) {
	p := play(t, func(n int) []byte {
		d := scene.New(n)
		frames := []scene.Frame{{Name: "top", Value: uint64(n) * 1000, Samples: 1}, {Name: "nvjet_tst_64x8_64x16_2x1_v_bz_TNT", Value: uint64(n) * 10, Samples: 1}}
		if n > 2 {
			frames = append(frames, scene.Frame{Name: "nvjet_tst_128x8_64x16_2x1_v_bz_TNT", Value: uint64(n) * 100, Samples: 1})
		}
		d.Profile("cuda_kernels_nanoseconds", nil, frames)
		return d.JSON()
	}, time.Second, 2)
	p.press(tea.Key{Code: tea.KeyDown})
	if got := p.rows[p.cursor].Name; got != "nvjet gemm bf16" {
		t.Fatalf("selected %q", got)
	}
	p.press(tea.Key{Code: tea.KeyEnter})
	p.reads(1)
	if got := p.plain(); !strings.HasPrefix(got, "nvjet gemm bf16 64x8\n") {
		t.Errorf("details after the renaming:\n%s", got)
	}
}

// A workload without a GPU is shown by its probes as soon as it has any, unless the user looks at something else.
func TestFirstRanking(t *testing.T) {
	probes := func(n int) []byte {
		d := scene.New(n)
		if n > 1 {
			d.Profile("app_parts_nanoseconds", nil, []scene.Frame{{Name: "load", Value: uint64(n), Samples: 1}})
		}
		if n > 3 {
			d.Profile("cuda_kernels_nanoseconds", nil, nil)
		}
		return d.JSON()
	}
	p := play(t, probes, time.Second, 1)
	for read, want := range []string{">[k]ernels", ">[o]wn probes", ">[o]wn probes", ">[k]ernels"} {
		if got := p.plain(); !strings.Contains(got, want) {
			t.Errorf("after read %d no %q in\n%s", read+1, want, got)
		}
		p.reads(1)
	}
	p = play(t, probes, time.Second, 1)
	p.typed("k")
	p.reads(1)
	if got := p.plain(); !strings.Contains(got, ">[k]ernels") {
		t.Errorf("the user's choice is gone:\n%s", got)
	}
}

func TestFilter(t *testing.T) {
	p := play(t, scene.Single, time.Second, 2)
	p.typed("/ALLRED")
	if len(p.rows) != 1 || !strings.Contains(p.plain(), "/ALLRED_") {
		t.Errorf("%d rows:\n%s", len(p.rows), p.plain())
	}
	p.press(tea.Key{Code: tea.KeyEnter})
	if !strings.Contains(p.plain(), "filter: ALLRED") {
		t.Errorf("no filter shown:\n%s", p.plain())
	}
	p.typed("/")
	p.press(tea.Key{Code: tea.KeyBackspace})
	p.typed("xyz")
	if len(p.rows) != 0 || !strings.Contains(p.plain(), "nothing matches") {
		t.Errorf("%d rows:\n%s", len(p.rows), p.plain())
	}
	p.press(tea.Key{Code: tea.KeyEnter}, tea.Key{Code: tea.KeyEnter}, tea.Key{Code: tea.KeyDown}, tea.Key{Code: tea.KeyEscape})
	if len(p.rows) != 16 {
		t.Errorf("%d rows after the filter", len(p.rows))
	}
	p.typed("/" + strings.Repeat("é\x1b", 100))
	if n := utf8.RuneCountInString(p.filter); n > maxFilter {
		t.Errorf("filter of %d characters", n)
	}
}

func TestStaleAndPaused(t *testing.T) {
	p := play(t, scene.Single, time.Second, 2)
	before := p.plain()
	p.source.err = errors.New("connection refused")
	p.reads(7)
	got := p.plain()
	for _, want := range []string{"STALE since 03:04:02 (7s)", "connection refused", "18259", "nvjet gemm bf16"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	p.source.err = nil
	p.reads(1)
	if strings.Contains(p.plain(), "STALE") || p.plain() == before {
		t.Errorf("not up to date again:\n%s", p.plain())
	}
	p.typed("p")
	frozen := p.view.Header.Uptime
	p.reads(3)
	if p.view.Header.Uptime != frozen || !strings.Contains(p.plain(), "PAUSED at 03:04:10") {
		t.Errorf("not paused:\n%s", p.plain())
	}
	p.typed("p")
	if p.view.Header.Uptime != frozen+3*time.Second || p.view.Span.Length != time.Second {
		t.Errorf("after the pause: up %v, window %v", p.view.Header.Uptime, p.view.Span)
	}
}

func TestNotReachableYet(t *testing.T) {
	p := play(t, scene.Single, time.Second, 0)
	p.source.err = errors.New("connection refused")
	p.reads(2)
	for _, want := range []string{"http://127.0.0.1:18259/signals", "connection refused", "--listen-host"} {
		if !strings.Contains(p.plain(), want) {
			t.Errorf("no %q in\n%s", want, p.plain())
		}
	}
	p.source.err = nil
	p.reads(1)
	if !strings.Contains(p.plain(), "window totals") || strings.Contains(p.plain(), "time/s") {
		t.Errorf("the first frame has no rates yet:\n%s", p.plain())
	}
}

func TestWindowKeys(t *testing.T) {
	p := play(t, scene.Single, 5*time.Second, 12)
	p.typed("+")
	if p.view.Span.Length != 10*time.Second {
		t.Errorf("longer: %v", p.view.Span)
	}
	p.typed("------")
	if p.view.Span.Length != time.Second {
		t.Errorf("shortest: %v", p.view.Span)
	}
	p.typed(strings.Repeat("+", 20))
	if p.view.Span.Want != 5*time.Minute {
		t.Errorf("longest: %v", p.view.Span)
	}
}

// While a view is being computed, however long that takes, keys are taken and the screen is drawn.
func TestKeysDuringAComputation(t *testing.T) {
	p := play(t, scene.Single, 5*time.Second, 12)
	p.views.mu.Lock()
	defer p.views.mu.Unlock()
	var later []tea.Cmd
	for _, key := range "+-p?" {
		if _, cmd := p.Update(tea.KeyPressMsg{Code: key, Text: string(key)}); cmd != nil {
			later = append(later, cmd)
		}
		_ = p.plain()
	}
	if len(later) != 2 || p.mode != help || !p.paused {
		t.Errorf("%d views are to be computed, mode %v, paused %v", len(later), p.mode, p.paused)
	}
	_, quit := p.Update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	if quit == nil {
		t.Fatal("q is not taken")
	}
	if _, ok := quit().(tea.QuitMsg); !ok {
		t.Error("q does not quit")
	}
}

// A view that was computed before the one on the screen does not replace it.
func TestViewsComeInOrder(t *testing.T) {
	p := play(t, scene.Single, 5*time.Second, 12)
	older := p.views.after(nil, time.Time{})
	p.typed("+")
	p.Update(windowMsg(older))
	if p.view.Span.Want != 10*time.Second {
		t.Errorf("the window went back to %v", p.view.Span.Want)
	}
}

// TestAbsentIsADash checks that what is not measured never looks like zero, and the reverse.
func TestAbsentIsADash(t *testing.T) {
	p := play(t, func(n int) []byte {
		d := scene.New(n)
		d.Gauge("gpu_utilization_percent", map[string]string{"device.uuid": "a"}, 0)
		d.Gauge("gpu_power_usage_watts", map[string]string{"device.uuid": "b"}, 24)
		d.TensorRT()
		return d.JSON()
	}, time.Second, 2)
	got := p.plain()
	for _, want := range []string{
		"  0   0%       ▁▁         n/a        -    -          -           - -",
		"  1    -                  n/a     24/-    -          -           - -",
		"TensorRT-LLM  running -  waiting -  KV -",
		"not measured",
		"no errors",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestJSONOfScenesIsValid(t *testing.T) {
	for _, s := range []func(int) []byte{scene.Serving, scene.Single, hostile, empty} {
		if !json.Valid(s(3)) {
			t.Error("not JSON")
		}
	}
}

// BenchmarkRedraw is one second of the live view of 8 GPUs with 250 kernels each: read, compute, draw.
func BenchmarkRedraw(b *testing.B) {
	for _, part := range []string{"decode", "compute and draw"} {
		b.Run(part, func(b *testing.B) {
			p := play(b, func(n int) []byte { return crowded(n, 8, 250) }, 5*time.Second, 8)
			p.Update(tea.WindowSizeMsg{Width: 160, Height: 50})
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				p.source.tick++
				body := p.source.make(p.source.tick)
				doc, err := endpoint.Decode(body)
				if err != nil {
					b.Fatal(err)
				}
				p.clock = p.clock.Add(time.Second)
				b.StartTimer()
				if part == "decode" {
					if _, err := endpoint.Decode(body); err != nil {
						b.Fatal(err)
					}
					continue
				}
				p.Update(readMsg{picture: p.views.after(doc, p.clock), at: p.clock, started: p.clock})
				_ = p.View()
			}
		})
	}
}
