// Which threads would keep a namespace alive that the main thread only visits?
//
// A new thread is in the namespace that its creator is in at that moment, and only a thread itself can leave it. The JavaScript engine
// starts threads on demand, for garbage collection and for compiling, also in the middle of a visit. Such a thread kept the
// namespace of a deleted container, and the far ends of its devices, for as long as the process had enough work for it.

/** Environment of a process in which the main thread alone collects garbage, which is what begins during visits most often. */
export const ONE_COLLECTOR = { BUN_JSC_numberOfGCMarkers: '1' } as const;

/** The same for a process in which no call waits while the main thread compiles, too. */
export const WITHOUT_HELPER_THREADS = { ...ONE_COLLECTOR, BUN_JSC_useConcurrentJIT: '0' } as const;
