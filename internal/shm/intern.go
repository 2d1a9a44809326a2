package shm

// maxInterned bounds the bytes of one generation of an interner; longer strings than maxInternedString, which no
// writer makes, are not kept.
const (
	maxInterned       = 4 << 20
	maxInternedString = 16 << 10
)

// interner returns one string for equal bytes, so that the names of kernels, which come again every second and in
// every process, exist once. Two generations bound it: what was not asked for while one filled up is forgotten.
type interner struct {
	young, old map[string]string
	size       int
}

func (in *interner) get(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s, ok := in.young[string(b)]; ok {
		return s
	}
	s, ok := in.old[string(b)]
	if !ok {
		s = string(b)
	}
	if len(s) > maxInternedString {
		return s
	}
	if in.young == nil || in.size > maxInterned {
		in.old, in.young, in.size = in.young, make(map[string]string), 0
	}
	in.young[s] = s
	in.size += len(s)
	return s
}
