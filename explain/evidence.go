package explain

// Confidence is how sure it is that time went where it is said to have gone.
type Confidence string

// Confidences. docs/explain.md defines them, and lists what they rest on.
const (
	Seen     Confidence = "seen"     // the records of that time say so themselves
	Inferred Confidence = "inferred" // a rule of the kernel or of a library connects the records
	Guess    Confidence = "guess"    // the records allow for something else as well
)

// evidence is what a piece rests on beside the records of its own time.
type evidence uint8

const (
	byRecords evidence = iota
	byNearness
	byOthersRequest
	byOpenRequest
	byOldRequest
	byDeviceOrder
	byQueueShare
	byQueueOrder
	byPlacing
	byPacket
	bySoftirq
	bySystemCall
	byKernelThread
	byFutexValue
	byFutexOperation
	byThreadExit
	byUnlock
	byOwner
	bySignal
	byCgroup
	bySleep
	byWaiter
	byTimerBefore
	byKernelsChoice
	byReclaimBefore
	byDispatch
	bySameRequest
	bySeries
	byLowerInstead
	byKeyThread
	byQuota
	byGap
	byWakeAlone
	byThaw
	bySpinning
	byOnlyRunner
	byTakeOver
	byLastMessage
	byOneOfMessages
	byUnseenMessage
	byOtherThread
	byAnswer
	byUnheard
	byNoAnswer
	byLaterAnswer
	byDriver
	byMaker
	byTries
	byOnlyChild
	byUsual
	byUsualSender
	byAsked
	byNoLimit
)

// evidences says how sure each is, and why.
var evidences = [...]struct {
	confidence Confidence
	words      string
}{
	byRecords:        {Seen, ""},
	byOthersRequest:  {Guess, "another one's request completed on that CPU less than 20 us before"},
	byNearness:       {Inferred, "its request completed on that CPU less than 100 us before"},
	byOpenRequest:    {Inferred, "it waits uninterruptibly, and its request has not completed"},
	byOldRequest:     {Inferred, "its request is older than the history, which has its completion"},
	byDeviceOrder:    {Inferred, "by the order and sizes of the requests in the device"},
	byQueueShare:     {Inferred, "it had most bytes in flight on the device"},
	byQueueOrder:     {Inferred, "it ran longest of what the queue or the worker had before"},
	byPlacing:        {Inferred, "how long is recorded, when is not"},
	byPacket:         {Inferred, "it sent the packet, by the packet's address"},
	bySoftirq:        {Inferred, "a softirq that receives packets woke it"},
	bySystemCall:     {Inferred, "packets were received within a system call of the task, as those that it sends on this machine are"},
	byKernelThread:   {Inferred, "by the name of the kernel thread, and who woke that last"},
	byFutexValue:     {Inferred, "by the value that its futex was expected to have"},
	byFutexOperation: {Inferred, "by the operation on its futex"},
	byThreadExit:     {Inferred, "the thread that woke it has ended then"},
	byUnlock:         {Inferred, "it woke the task that waited for the lock"},
	byOwner:          {Inferred, "it owned the lock when the wait began"},
	bySignal:         {Inferred, "it woke the task just before that stopped, or at the end"},
	byCgroup:         {Inferred, "switches do not say which of its cgroups"},
	bySleep:          {Inferred, "it was asleep at the end, and the history has no event of it"},
	byWaiter:         {Inferred, "a timer of TCP expired for the socket that it waited for"},
	byTimerBefore:    {Inferred, "the packet came on that CPU within 300 us after a timer of TCP, in the same softirqs"},
	byKernelsChoice:  {Inferred, "it slept uninterruptibly until a timer, as the kernel lets tasks wait, and as they cannot themselves"},
	byReclaimBefore:  {Inferred, "it slept uninterruptibly until a timer, right after it had reclaimed memory of its cgroup"},
	byDispatch:       {Inferred, "the work item that submits what a limit has held back submitted its request"},
	bySameRequest:    {Inferred, "another task waits for the same request that a limit has held back, and began before, or only for that one a limit holds"},
	bySeries:         {Inferred, "it ended the last one of the same waits, before which each had ended by its time limit or for a signal"},
	byLowerInstead:   {Inferred, "a real-time task lost its CPU to one that is none, or to nobody"},
	byQuota:          {Inferred, "a CPU quota was used up there, and whether it is the task's is not known"},
	byGap:            {Inferred, "records of some CPU are missing, on which it may have run meanwhile"},
	byWakeAlone:      {Inferred, "a timer woke it, and how it went to sleep is not recorded"},
	byThaw:           {Inferred, "it was frozen when its sleep ended, since when is not recorded"},
	bySpinning:       {Inferred, "it woke the task that samples found spinning for the lock"},
	byOnlyRunner:     {Inferred, "samples found the task spinning for a lock whose holder ran, and no other task ran all that time"},
	byTakeOver:       {Inferred, "no thread carried its token, until that one did"},
	byLastMessage:    {Inferred, "of what it waits for at once, this came last before it went on"},
	byOneOfMessages:  {Guess, "it had several messages, and for which one it went on is not recorded"},
	byUnseenMessage:  {Guess, "it was asked while it was at work already, when is not recorded"},
	byOtherThread:    {Guess, "that thread was at work meanwhile, and for which one it waited is not recorded"},
	byAnswer:         {Guess, "it was asked meanwhile and answered at the end, and for which task of the process is not recorded"},
	byUnheard:        {Guess, "it was asked meanwhile and went on right before, and whether it answered is not recorded"},
	byNoAnswer:       {Guess, "the task woke it before it began to wait, and a time limit ended the wait"},
	byLaterAnswer:    {Inferred, "the task woke it before it began to wait, and it woke the task after a timer had"},
	byDriver:         {Inferred, "the work queue of the worker is called as the disk is"},
	byMaker:          {Inferred, "it started the task, and what it did before may not have been for that"},
	byTries:          {Inferred, "it had the lock of the file when the task tried before it slept, and the task tried again then"},
	byOnlyChild:      {Inferred, "it is the only child of the process that is known"},
	byUsual:          {Guess, "it ended the last waits of the task in that call, and who will end this one is not known"},
	byUsualSender:    {Guess, "packets were received on top of it, and its process had sent what ended the last waits of the task in that call"},
	byAsked:          {Guess, "the task woke it before it began to wait, and who will end the wait is not known"},
	byNoLimit:        {Guess, "no limit of that disk holds for its cgroup now"},
	byKeyThread:      {Guess, "followed is the thread that began and ended it, which may have done other work meanwhile"},
}

// rank orders confidences from the surest.
func (c Confidence) rank() int {
	switch c {
	case Seen:
		return 0
	case Inferred:
		return 1
	}
	return 2
}

// weaker returns the less sure of two, the first if they are alike.
func weaker(a, b evidence) evidence {
	if evidences[b].confidence.rank() > evidences[a].confidence.rank() {
		return b
	}
	return a
}

// weigh sets what a part rests on: the least sure evidence of a tenth of its time or more.
// Unexplained time claims nothing.
func (p *Part) weigh(by *[len(evidences)]uint64) {
	if p.Cause == Unexplained {
		return
	}
	p.Confidence = Seen
	var most uint64
	for e := range by {
		c := evidences[e].confidence
		if by[e] == 0 || by[e]*10 < uint64(p.NS) || c.rank() < p.Confidence.rank() || c == p.Confidence && by[e] <= most {
			continue
		}
		p.Confidence, p.Evidence, most = c, evidences[e].words, by[e]
	}
}
