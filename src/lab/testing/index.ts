// What does a plugin author's test import?
export type { CallOptions, Fault, Reply, Verb } from '../call.ts';
export { diffKernelStates, type KernelState } from '../diff.ts';
export type { Namespace } from '../host.ts';
export { type Finished, listKernelRequests, type Plugin, type RunOptions, withFaults } from '../play.ts';
export type { Watch } from '../state.ts';
export { type Container, createHost, type TestHost, withHost } from './host.ts';
export { type FaultReport, type FaultTrial, failAtEveryRequest, sweepFaults } from './sweep.ts';
