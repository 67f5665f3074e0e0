// What does `catena set` do?

import { type Change, changeNetwork } from '../../chain/change.ts';
import type { ChainRuntime } from '../../chain/run/runtime.ts';
import { isObject, type JsonObject, parseObject } from '../../cni/json.ts';
import { capabilitiesOf } from '../capability-options.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { CNITOOLS_INDENT, printData } from '../output/format.ts';
import { whereRecorded } from '../running/change.ts';
import { findKnown, pickAttachment } from '../running/container.ts';
import { runtimeOf, watched } from '../target.ts';

/** Changes an attachment while its container runs, and prints its result, indented like that of `catena add`. */
export async function run(call: CommandCall): Promise<number> {
  const [container = '', what = ''] = call.positionals;
  const change = changeOf(call);
  const own = runtimeOf(call);
  const one = pickAttachment(findKnown(container, call.cwd, own), what);
  if (call.on('dry-run')) {
    const { showChange } = await import('../dry-run.ts');
    return showChange(call, one, change, whereRecorded(one, own));
  }
  const work = (runtime: ChainRuntime) => changeNetwork(one, change, whereRecorded(one, runtime));
  const result = await watched(call, 'SET', one, work, one.network);
  await printData(call, result, CNITOOLS_INDENT);
  return 0;
}

/** What the command line changes. @throws UsageError if that is nothing */
function changeOf(call: CommandCall): Change {
  const [capabilityArgs, conf] = [capabilitiesOf(call), call.text('conf')];
  if (call.text('cap') === undefined && conf === undefined && Object.keys(capabilityArgs).length === 0)
    throw new UsageError('Cannot change anything: --port, --rate, --cap or --conf is missing');
  return { capabilityArgs, options: conf === undefined ? {} : parseOptions(conf) };
}

function parseOptions(text: string): Record<string, JsonObject> {
  const options = parseObject(text, 'options of plugins (--conf)');
  for (const [plugin, value] of Object.entries(options)) {
    if (!isObject(value))
      throw new UsageError(`Cannot use --conf: the options of "${plugin}" must be an object`);
  }
  return options as Record<string, JsonObject>;
}
