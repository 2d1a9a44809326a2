package shm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// loadDocument reads one of the load documents.
func loadDocument(tb testing.TB, name string) []byte {
	tb.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".json.gz"))
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(unpacked)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

var frameValue = regexp.MustCompile(`":\[(\d+),(\d+)\]`)

// grown returns the document as it is n writes later: other values under the same names.
func grown(data []byte, n int) []byte {
	data = frameValue.ReplaceAllFunc(data, func(m []byte) []byte {
		parts := frameValue.FindSubmatch(m)
		value, _ := strconv.Atoi(string(parts[1]))
		return fmt.Appendf(nil, `":[%d,%s]`, value+n*1000, parts[2])
	})
	return bytes.Replace(data, []byte(`"write_ts":2`), fmt.Appendf(nil, `"write_ts":%d`, 2+n), 1)
}

// BenchmarkDocument parses one document of 1,000 series (load c) or of 250 frames with names of 1 KiB (load b),
// rewritten with the same names.
func BenchmarkDocument(b *testing.B) {
	for _, name := range []string{"load-c-0", "load-b-cupti"} {
		data := loadDocument(b, name)
		versions := [][]byte{grown(data, 1), grown(data, 2)}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var p Parser
			var h History
			for i := 0; b.Loop(); i++ {
				if _, err := p.Parse(versions[i%2], &h); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/unknown", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var p Parser
			for i := 0; b.Loop(); i++ {
				if _, err := p.Parse(versions[i%2], &History{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
