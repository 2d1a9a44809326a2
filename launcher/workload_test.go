package launcher

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// workloadPart plays a workload.
func workloadPart(part string, args []string) int {
	switch part {
	case "count":
		return countSignals(args)
	case "descriptors":
		fmt.Println(descriptors())
		return 0
	case "close-and-wait":
		// Closes descriptor 3, then lives until standard input ends.
		_ = unix.Close(3)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return 0
	case "terminal":
		return showTerminal()
	case "modes":
		return changeModes()
	}
	return 99
}

// countSignals appends the number of every signal that arrives to a file, until SIGUSR2 comes.
func countSignals(args []string) int {
	arrived := make(chan os.Signal, 256)
	var set []os.Signal
	for n := 1; n <= 64; n++ {
		switch syscall.Signal(n) {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGURG, syscall.SIGCHLD, syscall.SIGPIPE, syscall.SIGTTIN, syscall.SIGTTOU:
		default:
			set = append(set, syscall.Signal(n))
		}
	}
	signal.Notify(arrived, set...)
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 98
	}
	_, _ = fmt.Fprintln(file, "pid", os.Getpid())
	for sig := range arrived {
		_, _ = fmt.Fprintln(file, int(sig.(syscall.Signal)))
		if sig == syscall.SIGUSR2 {
			return 0
		}
	}
	return 0
}

// showTerminal says what standard input, output and error are, whether there is a controlling terminal, and then the
// size of the terminal at each SIGWINCH, until a line "q" comes.
func showTerminal() int {
	for fd := range 3 {
		fmt.Printf("fd%d terminal %v\n", fd, isTerminal(fd))
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	fmt.Printf("dev-tty %v\n", err == nil)
	if err == nil {
		group, groupErr := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
		fmt.Printf("foreground %v\n", groupErr == nil && group == unix.Getpgrp())
	}
	size := func() {
		if size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ); err == nil {
			fmt.Printf("size %dx%d\n", size.Row, size.Col)
		}
	}
	size()
	changes := make(chan os.Signal, 16)
	signal.Notify(changes, syscall.SIGWINCH)
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			lines <- in.Text()
		}
		close(lines)
	}()
	for {
		select {
		case <-changes:
			size()
		case line, ok := <-lines:
			if !ok || line == "q" {
				return 0
			}
			fmt.Println("got " + strconv.Quote(strings.TrimSpace(line)))
		}
	}
}

// changeModes switches the echo of standard output's terminal off and on again, at lines of standard input.
func changeModes() int {
	set := func(echo bool) {
		modes, err := unix.IoctlGetTermios(1, unix.TCGETS)
		if err != nil {
			return
		}
		modes.Lflag &^= unix.ECHO
		if echo {
			modes.Lflag |= unix.ECHO
		}
		_ = unix.IoctlSetTermios(1, unix.TCSETS, modes)
	}
	in := bufio.NewReader(os.Stdin)
	set(false)
	fmt.Println("echo is off")
	_, _ = in.ReadString('\n')
	set(true)
	fmt.Println("echo is on")
	_, _ = in.ReadString('\n')
	return 0
}
