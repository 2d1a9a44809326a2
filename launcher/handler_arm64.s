#include "textflag.h"

// onSignal is the handler of all forwarded signals: it writes the 128 bytes of siginfo to the signal pipe, whose
// writing end does not block. It runs on the alternative stack that every thread of Go's runtime has, and touches
// nothing of Go's. It returns to the kernel's own trampoline.
TEXT ·onSignal(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVW	·signalPipe(SB), R0
	MOVD	$128, R2
	MOVD	$64, R8 // write
	SVC
	RET

// func handlerAddresses() (handler, restorer uintptr)
TEXT ·handlerAddresses(SB),NOSPLIT,$0-16
	MOVD	$·onSignal(SB), R0
	MOVD	R0, handler+0(FP)
	MOVD	ZR, restorer+8(FP)
	RET
