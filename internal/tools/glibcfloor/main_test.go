package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program compiles a C program the way the Collector is linked and returns its path.
func program(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	built, err := exec.Command("gcc", file, "-o", out, "-no-pie", "-Wl,-z,lazy", "-Wl,--unresolved-symbols=ignore-in-object-files", "-Wl,--export-dynamic",
		"-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2").CombinedOutput()
	require.NoError(t, err, "%s", built)
	return out
}

const dlopens = `
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
int optionalCall(void);
static void* run(void* arg) { return arg; }
int main(int argc, char** argv) {
  pthread_t t;
  if (argc > 9) return optionalCall();
  if (pthread_create(&t, 0, run, 0) || pthread_join(t, 0)) return 1;
  puts(dlopen("libm.so.6", RTLD_NOW) && dlsym(RTLD_DEFAULT, "puts") ? "works" : "fails");
  return 0;
}`

// versions lists the versions that a program's symbols and its table of needed versions name.
func versions(t *testing.T, path string) (symbols, needs []string) {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range list {
		if s.Version != "" && s.Section == elf.SHN_UNDEF {
			symbols = append(symbols, s.Version)
		}
	}
	libs, err := f.DynamicVersionNeeds()
	require.NoError(t, err)
	for _, lib := range libs {
		for _, n := range lib.Needs {
			needs = append(needs, n.Dep)
		}
	}
	return symbols, needs
}

func TestLower(t *testing.T) {
	path := program(t, dlopens)
	bound := func() error {
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), "LD_BIND_NOW=1")
		return cmd.Run()
	}
	require.Error(t, bound(), "the optional function is missing")
	require.NoError(t, run(path, "2.28", strings.Split(moved, ","), "optional"))
	symbols, needs := versions(t, path)
	for _, v := range slices.Concat(symbols, needs) {
		assert.False(t, above(v, "2.28"), v)
	}
	assert.NotEmpty(t, needs)
	out, err := exec.Command(path).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "works\n", string(out))
	require.NoError(t, bound())

	once, err := os.ReadFile(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, run(path, "2.28", strings.Split(moved, ","), "optional"))
	twice, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, once, twice)
	again, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(info, again), "an unchanged file is left alone")
	assert.EqualValues(t, 0o755, info.Mode().Perm()&0o755)
}

func TestRefused(t *testing.T) {
	path := program(t, dlopens)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	err = run(path, "2.28", []string{"dlopen"}, "")
	require.ErrorContains(t, err, "symbols above GLIBC_2.28")
	assert.ErrorContains(t, err, "pthread_create@GLIBC_2.34")
	assert.NotContains(t, err.Error(), "dlopen@")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no program"), 0o600))
	assert.Error(t, run(text, "2.28", nil, ""))
	assert.Error(t, run(text+".missing", "2.28", nil, ""))
}

func TestAbove(t *testing.T) {
	for name, want := range map[string]bool{
		"": false, "GLIBC_2.2.5": false, "GLIBC_2.28": false, "GLIBC_2.28.1": true, "GLIBC_2.3": false, "GLIBC_2.29": true,
		"GLIBC_2.34": true, "GLIBC_3.0": true, "GLIBC_PRIVATE": true, "GLIBCXX_9.9": false,
	} {
		assert.Equal(t, want, above(name, "2.28"), name)
	}
}
