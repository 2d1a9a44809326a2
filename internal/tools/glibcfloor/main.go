// Command glibcfloor makes a program that was linked on a new glibc start on older ones. It edits the file in place;
// doing it again changes nothing.
//
//	glibcfloor -floor 2.28 -optional nvml FILE
//
// References to glibc symbols of a version above the floor lose their version, so that the loader binds them to
// whichever definition its own glibc has as default: functions that only moved between glibc's libraries, as those of
// libdl and libpthread did in 2.34, exist under an older version everywhere. The program must be linked with the
// libraries they moved from:
//
//	-Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2
//
// Functions named by -moved are the only ones treated so; any other symbol above the floor is an error, since it may not
// exist on an older glibc at all.
//
// Undefined symbols that begin with the -optional prefix become weak. Without the library that has them, the program
// then starts even when the loader is told to bind everything at once (LD_BIND_NOW).
package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// moved are the functions that a cgo program uses and that exist since long before the floor under an older version.
const moved = "__libc_start_main,dladdr,dlclose,dlerror,dlinfo,dlopen,dlsym,pthread_attr_getstack,pthread_attr_getstacksize," +
	"pthread_attr_setstacksize,pthread_create,pthread_detach,pthread_getattr_np,pthread_getspecific,pthread_join,pthread_key_create," +
	"pthread_key_delete,pthread_kill,pthread_once,pthread_setname_np,pthread_setspecific,pthread_sigmask,sem_destroy,sem_init,sem_post,sem_wait"

func main() {
	floor := flag.String("floor", "2.28", "newest glibc version that may stay in the file")
	names := flag.String("moved", moved, "functions that may lose their version, separated by commas")
	optional := flag.String("optional", "", "prefix of undefined symbols that become weak")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *floor, strings.Split(*names, ","), *optional); err != nil {
		fmt.Fprintf(os.Stderr, "glibcfloor: %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

func run(path, floor string, moved []string, optional string) error {
	image, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	edited := slices.Clone(image)
	if err := lower(edited, floor, moved, optional); err != nil {
		return err
	}
	if bytes.Equal(image, edited) {
		return nil
	}
	return writeChanges(path, image, edited)
}

// writeChanges writes the blocks that differ. The rest stays as the linker left it in the page cache: a file written
// as a whole lies there in large folios, of which each page fault maps all, and the program's resident set doubles.
func writeChanges(path string, image, edited []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	const block = 4096
	for at := 0; at < len(edited); at += block {
		end := min(at+block, len(edited))
		if bytes.Equal(image[at:end], edited[at:end]) {
			continue
		}
		if _, err := file.WriteAt(edited[at:end], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// Layout of the GNU symbol version tables, from the ELF part of the Linux Standard Base.
const (
	symSize    = 24 // Elf64_Sym
	symInfo    = 4  // offset of st_info
	verneedAux = 8  // Elf64_Verneed: vn_aux, the offset of the first Vernaux
	verneedNxt = 12 // vn_next
	vernauxHsh = 0  // Elf64_Vernaux: vna_hash, the System V hash of the name
	vernauxOth = 6  // vna_other, the index that symbols refer to
	vernauxNam = 8  // vna_name, an offset into the string table
	vernauxNxt = 12 // vna_next

	// verGlobal is the version index of a symbol without version.
	verGlobal = 1
)

// lower edits the program image.
func lower(image []byte, floor string, moved []string, optional string) error {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	if f.Class != elf.ELFCLASS64 || f.ByteOrder != binary.LittleEndian {
		return errors.New("not a 64-bit little-endian program")
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return err // no dynamic symbols: a static program has no need of this
	}
	table, versions, needs := f.Section(".dynsym"), f.Section(".gnu.version"), f.Section(".gnu.version_r")
	if table == nil || versions == nil || needs == nil {
		return errors.New("the program has no symbol versions")
	}
	var refused []string
	for i, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			continue
		}
		entry := uint64(i) + 1 // DynamicSymbols leaves out the null symbol
		if optional != "" && strings.HasPrefix(s.Name, optional) {
			at, err := within(image, table, entry*symSize+symInfo, 1)
			if err != nil {
				return err
			}
			at[0] = elf.ST_INFO(elf.STB_WEAK, elf.ST_TYPE(s.Info))
			continue
		}
		if !above(s.Version, floor) {
			continue
		}
		if !slices.Contains(moved, s.Name) {
			refused = append(refused, s.Name+"@"+s.Version)
			continue
		}
		at, err := within(image, versions, entry*2, 2)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint16(at, verGlobal)
	}
	if len(refused) > 0 {
		return fmt.Errorf("symbols above GLIBC_%s that may be missing on an older glibc: %s", floor, strings.Join(refused, ", "))
	}
	return lowerNeeds(image, f, needs, floor)
}

// lowerNeeds makes each needed version above the floor a repetition of one that is not, which every loader accepts.
func lowerNeeds(image []byte, f *elf.File, needs *elf.Section, floor string) error {
	names := f.Sections[needs.Link]
	var low, high [][]byte
	for file := uint64(0); ; {
		head, err := within(image, needs, file, 16)
		if err != nil {
			return err
		}
		for aux := file + uint64(binary.LittleEndian.Uint32(head[verneedAux:])); ; {
			v, err := within(image, needs, aux, 16)
			if err != nil {
				return err
			}
			name, err := text(image, names, binary.LittleEndian.Uint32(v[vernauxNam:]))
			if err != nil {
				return err
			}
			if above(name, floor) {
				high = append(high, v)
			} else if strings.HasPrefix(name, prefix) {
				low = append(low, v)
			}
			next := binary.LittleEndian.Uint32(v[vernauxNxt:])
			if next == 0 {
				break
			}
			aux += uint64(next)
		}
		next := binary.LittleEndian.Uint32(head[verneedNxt:])
		if next == 0 {
			break
		}
		file += uint64(next)
	}
	if len(high) > 0 && len(low) == 0 {
		return errors.New("no glibc version below the floor is needed, so there is none to repeat")
	}
	for _, v := range high {
		copy(v[vernauxHsh:vernauxHsh+4], low[0][vernauxHsh:])
		copy(v[vernauxNam:vernauxNam+4], low[0][vernauxNam:])
	}
	return nil
}

// within returns n bytes of a section.
func within(image []byte, s *elf.Section, offset, n uint64) ([]byte, error) {
	if offset+n > s.Size || s.Offset+offset+n > uint64(len(image)) {
		return nil, fmt.Errorf("section %s is cut short", s.Name)
	}
	return image[s.Offset+offset:][:n:n], nil
}

// text returns a string of a string table.
func text(image []byte, s *elf.Section, offset uint32) (string, error) {
	if uint64(offset) >= s.Size || s.Offset+s.Size > uint64(len(image)) {
		return "", fmt.Errorf("section %s is cut short", s.Name)
	}
	name, _, ok := bytes.Cut(image[s.Offset+uint64(offset):s.Offset+s.Size], []byte{0})
	if !ok {
		return "", fmt.Errorf("section %s is cut short", s.Name)
	}
	return string(name), nil
}

const prefix = "GLIBC_"

// above reports whether a version name is glibc's and newer than the floor.
func above(name, floor string) bool {
	version, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return false
	}
	return slices.Compare(numbers(version), numbers(floor)) > 0
}

// numbers reads "2.3.4". A word, as in GLIBC_PRIVATE, is newer than any number.
func numbers(version string) []int {
	var list []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			n = 1 << 30
		}
		list = append(list, n)
	}
	return list
}
