#include "textflag.h"

// onSignal is the handler of all forwarded signals: it writes the 128 bytes of siginfo to the signal pipe, whose
// writing end does not block. It runs on the alternative stack that every thread of Go's runtime has, and touches
// nothing of Go's.
TEXT ·onSignal(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVL	·signalPipe(SB), DI
	MOVL	$128, DX
	MOVL	$1, AX // write
	SYSCALL
	RET

TEXT ·signalReturn(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVL	$15, AX // rt_sigreturn
	SYSCALL
	INT	$3

// func handlerAddresses() (handler, restorer uintptr)
TEXT ·handlerAddresses(SB),NOSPLIT,$0-16
	LEAQ	·onSignal(SB), AX
	MOVQ	AX, handler+0(FP)
	LEAQ	·signalReturn(SB), AX
	MOVQ	AX, restorer+8(FP)
	RET
