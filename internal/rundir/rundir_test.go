package rundir

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// dead returns a pid that no process has.
func dead(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	return cmd.Process.Pid
}

// document makes a run directory with one document in it, last changed some time ago.
func document(t *testing.T, path string, age time.Duration) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(path, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path, "cupti.json"), []byte("{}"), 0o600))
	setAge(t, path, age)
	return path
}

func setAge(t *testing.T, path string, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.Chtimes(filepath.Join(path, e.Name()), at, at))
	}
	require.NoError(t, os.Chtimes(path, at, at))
}

func own(t *testing.T, path string, owner Owner) {
	t.Helper()
	text, err := json.Marshal(owner)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(path, ownerFile), text, 0o600))
}

func TestNames(t *testing.T) {
	assert.Equal(t, "/dev/shm/graphsignal_7", Path("/dev/shm", 7))
	assert.Equal(t, "/dev/shm/graphsignal_log_7", ConsolePath("/dev/shm/", 7))
	for name, want := range map[string]struct {
		pid         int
		console, ok bool
	}{
		"graphsignal_7": {7, false, true}, "graphsignal_log_7": {7, true, true},
		"graphsignal_": {}, "graphsignal_x": {}, "graphsignal_log_": {}, "graphsignal_log_x": {}, "graphsignal_-7": {},
		"graphsignal_0": {}, "graphsignal_07": {}, "graphsignal_+7": {}, "graphsignal_7 ": {}, "other_7": {},
		"graphsignal_99999999999999999999": {},
	} {
		pid, console, ok := ParseName(name)
		assert.Equal(t, want.ok, ok, name)
		if ok {
			assert.Equal(t, want.pid, pid, name)
			assert.Equal(t, want.console, console, name)
		}
	}
}

func TestOwnerTellsOurNamespace(t *testing.T) {
	d := New(t.TempDir(), "/proc")
	owner := d.Owner(7, 99)
	assert.Equal(t, 7, owner.PID)
	assert.Equal(t, uint64(99), owner.StartTicks)
	assert.Len(t, owner.BootID, 36)
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/proc/self/ns/pid", &st))
	assert.Equal(t, st.Ino, owner.Namespace)
	// The native writer's form.
	got, ok := ParseOwner([]byte(`{"pid":7,"start_time":99,"boot_id":"` + owner.BootID + `","pid_ns":` + strconv.FormatUint(st.Ino, 10) + "}\n"))
	assert.True(t, ok)
	assert.Equal(t, owner, got)
}

func TestSweepRemovesOnlyWhatIsStaleAndOurs(t *testing.T) {
	base := t.TempDir()
	d := New(base, "/proc")
	pid := dead(t)
	foreign := func(o Owner) Owner { o.Namespace++; return o }
	otherBoot := func(o Owner) Owner { o.BootID = "00000000-0000-0000-0000-000000000000"; return o }
	cases := map[string]struct {
		name   string
		age    time.Duration
		owner  *Owner
		broken string // instead of owner
		swept  bool
	}{
		"ours, just now":         {owner: ptr(d.Owner(pid, 5))},
		"ours, a moment ago":     {owner: ptr(d.Owner(pid, 5)), age: 3 * time.Second, swept: true},
		"ours, console":          {name: "log_", owner: ptr(d.Owner(pid, 5)), age: 3 * time.Second, swept: true},
		"another namespace, new": {owner: ptr(foreign(d.Owner(pid, 5)))},
		"another namespace, old": {owner: ptr(foreign(d.Owner(pid, 5))), age: 48 * time.Hour},
		"another boot, old":      {owner: ptr(otherBoot(d.Owner(pid, 5))), age: 48 * time.Hour},
		"another pid":            {owner: ptr(d.Owner(pid+1, 5)), age: time.Hour},
		"no owner, new":          {},
		"no owner, 9 minutes":    {age: 9 * time.Minute},
		"no owner, 11 minutes":   {age: 11 * time.Minute, swept: true},
		"no owner, console":      {name: "log_", age: time.Hour, swept: true},
		"broken owner, new":      {broken: "{"},
		"broken owner, old":      {broken: `{"pid":0}`, age: time.Hour, swept: true},
		"from the future":        {age: -time.Hour},
	}
	for name, c := range cases {
		path := document(t, filepath.Join(base, "graphsignal_"+c.name+strconv.Itoa(pid)), c.age)
		if c.owner != nil {
			own(t, path, *c.owner)
		}
		if c.broken != "" {
			require.NoError(t, os.WriteFile(filepath.Join(path, ownerFile), []byte(c.broken), 0o600))
		}
		setAge(t, path, c.age)
		removed, err := d.Sweep(0)
		require.NoError(t, err, name)
		if c.swept {
			assert.Equal(t, []string{path}, removed, name)
			assert.NoDirExists(t, path, name)
		} else {
			assert.Empty(t, removed, name)
			assert.DirExists(t, path, name)
		}
		require.NoError(t, os.RemoveAll(path))
	}
}

func ptr[T any](v T) *T { return &v }

// TestSweepLeavesTheTarget: what a workload left that ended before the sidecar was up is still to be read.
func TestSweepLeavesTheTarget(t *testing.T) {
	base := t.TempDir()
	d := New(base, "/proc")
	pid := dead(t)
	path := document(t, Path(base, pid), time.Hour)
	own(t, path, d.Owner(pid, 5))
	setAge(t, path, time.Hour)
	removed, err := d.Sweep(pid)
	require.NoError(t, err)
	assert.Empty(t, removed)
	removed, err = d.Sweep(pid + 1)
	require.NoError(t, err)
	assert.Equal(t, []string{path}, removed)
}

func TestSweepLeavesTheLivingAndWhatIsNoRunDirectory(t *testing.T) {
	base := t.TempDir()
	d := New(base, "/proc")
	pid := dead(t)
	kept := []string{
		document(t, Path(base, os.Getpid()), time.Hour), document(t, ConsolePath(base, 1), time.Hour),
		document(t, filepath.Join(base, "graphsignal_cache"), time.Hour),
	}
	own(t, kept[0], d.Owner(os.Getpid(), 1)) // of an earlier process of this pid: left until it ends
	file := Path(base, pid)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	target := document(t, filepath.Join(t.TempDir(), "elsewhere"), time.Hour)
	link := ConsolePath(base, pid)
	require.NoError(t, os.Symlink(target, link))
	removed, err := d.Sweep(0)
	require.NoError(t, err)
	assert.Empty(t, removed)
	for _, path := range kept {
		assert.DirExists(t, path)
	}
	assert.FileExists(t, file)
	assert.FileExists(t, filepath.Join(target, "cupti.json"))
	_, err = New(filepath.Join(base, "none"), "/proc").Sweep(0)
	assert.Error(t, err)
}

// TestSweepOfASharedMount is the case of two containers with one /dev/shm and their own pids.
func TestSweepOfASharedMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a pid namespace needs root")
	}
	base := t.TempDir()
	cmd := exec.Command("sh", "-c", "echo $$; read x")
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	if err := cmd.Start(); err != nil {
		t.Skip("pid namespaces are not allowed: ", err)
	}
	inode := func() uint64 {
		var st unix.Stat_t
		require.NoError(t, unix.Stat("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/ns/pid", &st))
		return st.Ino
	}()
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	d := New(base, "/proc")
	pid := dead(t)
	theirs := document(t, Path(base, pid), time.Hour)
	owner := d.Owner(pid, 1)
	require.NotEqual(t, owner.Namespace, inode)
	owner.Namespace = inode
	own(t, theirs, owner)
	setAge(t, theirs, time.Hour)
	_, err = d.Sweep(0)
	require.NoError(t, err)
	assert.DirExists(t, theirs)
	require.NoError(t, d.Remove(theirs, pid, 0), "the end of a process of ours with that pid")
	assert.DirExists(t, theirs)
}

func TestRemove(t *testing.T) {
	base := t.TempDir()
	d := New(base, "/proc")
	path := Path(base, 7)
	require.NoError(t, d.Remove(path, 7, 1), "nothing there")

	document(t, path, 0)
	require.NoError(t, d.Remove(path, 7, 1), "without owner")
	assert.NoDirExists(t, path)

	own(t, document(t, path, 0), d.Owner(7, 2))
	require.NoError(t, d.Remove(path, 7, 1))
	assert.DirExists(t, path, "a later process of the pid")
	require.NoError(t, d.Remove(path, 7, 2))
	assert.NoDirExists(t, path)

	own(t, document(t, path, 0), d.Owner(7, 2))
	require.NoError(t, d.Remove(path, 7, 0), "start unknown")
	assert.NoDirExists(t, path)

	other := *d
	other.uid = d.uid + 1
	document(t, path, 0)
	require.NoError(t, other.Remove(path, 7, 1))
	assert.DirExists(t, path, "another user's")
}

// TestOwnerFileThatIsNone must neither hang nor be believed.
func TestOwnerFileThatIsNone(t *testing.T) {
	base := t.TempDir()
	d := New(base, "/proc")
	pid := dead(t)
	path := document(t, Path(base, pid), time.Hour)
	require.NoError(t, unix.Mkfifo(filepath.Join(path, ownerFile), 0o600))
	setAge(t, path, 0)
	removed, err := d.Sweep(0)
	require.NoError(t, err)
	assert.Empty(t, removed)
	require.NoError(t, os.Remove(filepath.Join(path, ownerFile)))
	elsewhere := document(t, filepath.Join(t.TempDir(), "x"), 0)
	own(t, elsewhere, d.Owner(pid, 1))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, ownerFile), filepath.Join(path, ownerFile)))
	removed, err = d.Sweep(0)
	require.NoError(t, err)
	assert.Empty(t, removed)
}

func TestCreateConsole(t *testing.T) {
	base := t.TempDir()
	d := New(base, "/proc")
	owner := d.Owner(7, 5)
	path, err := d.CreateConsole(owner)
	require.NoError(t, err)
	assert.Equal(t, ConsolePath(base, 7), path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|0o700, info.Mode())
	info, err = os.Stat(filepath.Join(path, ownerFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	text, err := os.ReadFile(filepath.Join(path, ownerFile))
	require.NoError(t, err)
	got, ok := ParseOwner(text)
	assert.True(t, ok)
	assert.Equal(t, owner, got)

	_, err = d.CreateConsole(owner)
	assert.ErrorContains(t, err, "exists already")

	// What an earlier process of the pid left is not taken for ours.
	require.NoError(t, os.WriteFile(filepath.Join(path, "log_0.jsonl"), []byte("old"), 0o600))
	_, err = d.CreateConsole(d.Owner(7, 6))
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(path, "log_0.jsonl"))

	foreign := d.Owner(7, 7)
	foreign.Namespace++
	own(t, path, foreign)
	_, err = d.CreateConsole(d.Owner(7, 8))
	assert.ErrorContains(t, err, "another pid namespace")
	setAge(t, path, time.Hour)
	_, err = d.CreateConsole(d.Owner(7, 8))
	require.NoError(t, err, "silent for an hour")

	require.NoError(t, os.Chmod(path, 0o770))
	_, err = d.CreateConsole(d.Owner(7, 9))
	assert.ErrorContains(t, err, "other users")
	require.NoError(t, os.RemoveAll(path))
	require.NoError(t, os.Symlink(t.TempDir(), path))
	_, err = d.CreateConsole(d.Owner(7, 9))
	assert.Error(t, err)
	_, err = New(filepath.Join(base, "none"), "/proc").CreateConsole(owner)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestPidsOfAWrittenTable(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "7"), 0o700))
	d := New(t.TempDir(), root)
	assert.True(t, d.alive(7))
	assert.False(t, d.alive(os.Getpid()))
	assert.True(t, New(t.TempDir(), "/proc").alive(os.Getpid()))
}

func FuzzParseOwner(f *testing.F) {
	f.Add([]byte(`{"pid":7,"start_time":99,"boot_id":"x","pid_ns":4026531836}`))
	f.Add([]byte(`{"pid":-7}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if owner, ok := ParseOwner(data); ok && (owner.PID <= 0 || owner.BootID == "" || owner.Namespace == 0) {
			t.Errorf("%+v", owner)
		} else if ok {
			text, err := json.Marshal(owner)
			if again, ok := ParseOwner(text); err != nil || !ok || again != owner {
				t.Errorf("%+v became %+v, %v", owner, again, err)
			}
		}
	})
}

// FuzzParseName: a name that is taken for that of a run directory is the one that its pid has.
func FuzzParseName(f *testing.F) {
	for _, name := range []string{"graphsignal_7", "graphsignal_log_7", "graphsignal_07", "graphsignal_log_", "graphsignal_-1", "graphsignal_log_9223372036854775808", "x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		pid, console, ok := ParseName(name)
		if !ok {
			return
		}
		want := Path("/b", pid)
		if console {
			want = ConsolePath("/b", pid)
		}
		if pid <= 0 || "/b/"+name != want {
			t.Errorf("%q is pid %d, console %v", name, pid, console)
		}
	})
}

// TestSweepOfWhatWasNeverUsed: whoever made it was killed before it could say so.
func TestSweepOfWhatWasNeverUsed(t *testing.T) {
	d := New(t.TempDir(), "/proc")
	now := time.Now()
	d.now = func() time.Time { return now }
	empty, half := Path(d.base, dead(t)), ConsolePath(d.base, dead(t))
	for _, path := range []string{empty, half} {
		require.NoError(t, os.Mkdir(path, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(half, ownerFile), nil, 0o600))
	used := document(t, Path(d.base, dead(t)), 0)

	removed, err := d.Sweep(1)
	require.NoError(t, err)
	assert.Empty(t, removed)
	now = now.Add(unusedAfter + time.Second)
	removed, err = d.Sweep(1)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{empty, half}, removed)
	assert.DirExists(t, used)
}

// TestSweepLeavesARunThatGoesOn: what the processes of a held run left stays however old it is, and no longer.
func TestSweepLeavesARunThatGoesOn(t *testing.T) {
	d := New(t.TempDir(), "/proc")
	first, second, other := dead(t), dead(t), dead(t)
	owner := func(pid int, run string) Owner {
		o := d.Owner(pid, 5)
		o.Run = run
		return o
	}
	console := document(t, ConsolePath(d.base, first), time.Hour)
	own(t, console, owner(first, "ab12"))
	mine, theirs := document(t, Path(d.base, second), time.Hour), document(t, Path(d.base, other), time.Hour)
	own(t, mine, owner(second, "ab12"))
	own(t, theirs, owner(other, "ab13"))
	for _, path := range []string{console, mine, theirs} {
		setAge(t, path, time.Hour)
	}
	dir, err := os.Open(console)
	require.NoError(t, err)
	require.NoError(t, Hold(int(dir.Fd())))

	removed, err := d.Sweep(1)
	require.NoError(t, err)
	assert.Equal(t, []string{theirs}, removed)
	require.NoError(t, dir.Close())
	removed, err = d.Sweep(1)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{console, mine}, removed)
}

func TestFinder(t *testing.T) {
	d := New(t.TempDir(), "/proc")
	f := d.NewFinder("ab12")
	found := func() []Owner {
		t.Helper()
		owners, err := f.New()
		require.NoError(t, err)
		return owners
	}
	assert.Empty(t, found())
	mine := func(pid int, ticks uint64) Owner {
		o := d.Owner(pid, ticks)
		o.Run = "ab12"
		return o
	}
	foreign := mine(40, 5)
	foreign.Namespace++
	another := mine(41, 5)
	another.Run = "ab13"
	for name, owner := range map[string]Owner{
		Path(d.base, 7): mine(7, 5), Path(d.base, 8): mine(9, 5), Path(d.base, 40): foreign, Path(d.base, 41): another,
		Path(d.base, 42): d.Owner(42, 5), ConsolePath(d.base, 7): mine(7, 5),
	} {
		own(t, document(t, name, 0), owner)
	}
	half := document(t, Path(d.base, 10), 0)
	require.NoError(t, os.WriteFile(filepath.Join(half, ownerFile), []byte(`{"pid":10,`), 0o600))
	require.NoError(t, os.Symlink(Path(d.base, 7), Path(d.base, 11)))
	assert.Equal(t, []Owner{mine(7, 5)}, found())
	assert.Empty(t, found(), "told once")

	own(t, half, mine(10, 5)) // it was being written
	assert.Equal(t, []Owner{mine(10, 5)}, found())

	// A later process of the pid writes into the file of the earlier.
	own(t, Path(d.base, 7), mine(7, 600))
	require.NoError(t, os.Chtimes(filepath.Join(Path(d.base, 7), ownerFile), time.Now(), time.Now().Add(time.Minute)))
	assert.Equal(t, []Owner{mine(7, 600)}, found())

	require.NoError(t, os.RemoveAll(d.base))
	_, err := f.New()
	require.ErrorIs(t, err, os.ErrNotExist)
}
