// What does loopback do for each verb?
import { definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { LoopbackConf } from './config.ts';
import { isLoopbackUp, listLoopbackAddresses, setLoopback } from './kernel.ts';
import { planResult } from './plan.ts';

/** Brings up the container's loopback interface. */
export const loopback = definePlugin({
  name: 'loopback',
  config: LoopbackConf,
  netns: 'required',

  add(call) {
    const { container } = call;
    const changed = setLoopback(container, true);
    if (changed) call.onFailure('set the loopback interface down', () => void setLoopback(container, false));
    return call.prevResult ?? planResult(listLoopbackAddresses(container), call.env.netns);
  },

  check(call) {
    if (isLoopbackUp(call.container)) return;
    throw new Error(`Cannot confirm the loopback interface in "${call.env.netns}": it is down`);
  },

  repair(call) {
    setLoopback(call.container, true);
  },

  // A late DEL may find another container's loopback at the path, and nothing tells them apart.
  del: nothingToDo('the interface ends with its namespace'),
  gc: nothingToDo('the kernel deletes the interface with its namespace'),
  status: nothingToDo('every kernel has a loopback interface'),
});
