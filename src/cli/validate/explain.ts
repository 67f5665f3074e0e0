// What does `catena validate --explain` print?
import type { Conflist } from '../../chain/config/conflist.ts';
import { NetworkNotFound } from '../../chain/config/load.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { explainList, type RuntimeVerdict, renderList } from '../explain.ts';
import { findList, type NamedList } from '../named-list.ts';
import { printAnswer } from '../output/print.ts';
import { catalogOf } from '../plugin-catalog.ts';
import { readConfigured } from '../runtimes/configured.ts';
import { installedAs } from '../runtimes/libcni.ts';
import { choose, RUNTIMES, readCandidates } from '../runtimes/rules.ts';
import { widthOf } from '../terminal/lines.ts';

/** Where the output is no terminal. */
const WIDTH = 80;

/** Explains every line of a list. */
export async function run(call: CommandCall): Promise<number> {
  const [what, ...more] = call.positionals;
  if (what === undefined || more.length > 0) throw new UsageError('Cannot explain: name one list or network');
  const width = widthOf(call) ?? WIDTH;
  const { list, file, dir } = find(call, what);
  const explanation = await explainList(list, catalogOf(call));
  const runtimes = await verdictsOn(list, dir, file);
  await printAnswer(call, 'NetworkExplanation', { ...explanation, runtimes }, () =>
    renderList(explanation, runtimes, width),
  );
  return 0;
}

/** The name of a plugin is no list, and a reader may not know the difference. */
function find(call: CommandCall, what: string): NamedList {
  try {
    return findList(call, what);
  } catch (error) {
    if (!(error instanceof NetworkNotFound) || !call.plugins.types.includes(what)) throw error;
    throw new UsageError(
      `Cannot explain "${what}": it is a plugin and no network; catena validate --schema ${what} shows its options`,
    );
  }
}

/** Which runtimes would use the list if its directory is the one they read. */
async function verdictsOn(list: Conflist, dir: string, file: string | undefined): Promise<RuntimeVerdict[]> {
  const candidates = await readCandidates(dir);
  const configured = readConfigured('/etc');
  const name = file ?? candidates.find(one => one.list?.name === list.name)?.name;
  return RUNTIMES.flatMap(runtime => {
    const own = configured.find(one => one.runtime === runtime);
    const { verdicts } = choose(runtime, candidates, { ...own, ...installedAs(runtime) });
    return verdicts.filter(verdict => verdict.file === name).map(({ used, why }) => ({ runtime, used, why }));
  });
}
