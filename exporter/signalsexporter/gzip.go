package signalsexporter

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/klauspost/compress/flate"
)

// gzipHeader is the fixed header of RFC 1952: deflate, no flags, no time, unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// compressed returns the snapshot as deflate blocks, made once. They begin at a byte boundary and refer to
// nothing before them.
func (s *snapshot) compressed() []byte {
	s.zipOnce.Do(func() {
		var buf bytes.Buffer
		buf.Grow(len(s.rest) / 8)
		// Writes to a bytes.Buffer do not fail, and BestSpeed is a valid level.
		w, _ := flate.NewWriter(&buf, flate.BestSpeed)
		_, _ = w.Write(s.rest)
		_ = w.Close()
		s.zip = buf.Bytes()
	})
	return s.zip
}

// gzipReply returns what comes before and after the compressed snapshot in one gzip member: the header and the
// reply's head as a stored block, and the checksum over both. So the head can differ while the rest is shared.
func (d *document) gzipReply(s *snapshot, head []byte) (before, after []byte) {
	d.zipped.Store(int64(time.Since(d.base)))
	before = append(before, gzipHeader...)
	before = append(before, 0) // not the last block, stored
	before = binary.LittleEndian.AppendUint16(before, uint16(len(head)))
	before = binary.LittleEndian.AppendUint16(before, ^uint16(len(head)))
	before = append(before, head...)
	sum := crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, s.rest)
	after = binary.LittleEndian.AppendUint32(after, sum)
	after = binary.LittleEndian.AppendUint32(after, uint32(len(head)+len(s.rest)))
	return before, after
}
