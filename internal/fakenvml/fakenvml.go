// Package fakenvml builds a stand-in for libnvidia-ml.so.1 for tests, whose devices and answers are written in a script.
//
// A script has lines; # begins a comment. A line "gpu" begins a device, "mig SLOT" a MIG device of the last GPU. Lines
// before the first device are about the library: "Init RET", "InitDelay MS", "DeviceGetCount RET",
// "DeviceGetHandleByIndex RET". All others belong to the device before them:
//
//	FUNCTION RET VALUE…          what nvmlDevice<FUNCTION> answers; without a line it is 3, not supported
//	FUNCTION.ARGUMENT RET VALUE… the same where it has an argument: GetClockInfo.1, GetTotalEccErrors.0.1, GetSamples.1
//	ClocksReasons RET MASK       both functions for throttle reasons
//	GetComputeRunningProcesses RET PID BYTES PID BYTES…
//	field.ID.SCOPE RET TYPE VALUE [GROWTH]   GROWTH is per second since the script was read
//	all RET                      every function answers RET
//	delay MS                     every function takes so long; delay.FUNCTION MS one of them
//	event XID [GI CI]            one XID event; those that were taken do not come again
package fakenvml

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed testdata/fakenvml.c
var source []byte

// Environment variables that the library reads: the script, and a file to which it logs every call.
const (
	ScriptVariable = "FAKENVML_SCRIPT"
	LogVariable    = "FAKENVML_LOG"
)

// Build compiles the library into dir and returns its path. An old one lacks the functions that came after R470.
func Build(dir string, old bool) (string, error) {
	path := filepath.Join(dir, "libnvidia-ml.so.1")
	file := filepath.Join(dir, "fakenvml.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return "", err
	}
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-Wl,-soname,libnvidia-ml.so.1"}
	if old {
		args = append(args, "-DOLD_DRIVER", "-Wno-unused-function")
	}
	out, err := exec.Command("gcc", append(args, file, "-o", path, "-pthread")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return path, nil
}

// Write replaces the script at path in one step.
func Write(path, script string) error {
	if err := os.WriteFile(path+".new", []byte(script), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
