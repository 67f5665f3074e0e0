// What does `catena validate --schema` print?
import { didYouMean } from '../../cni/json.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { printData } from '../output/data.ts';
import { catalogOf } from '../plugin-catalog.ts';

/** Prints the schema of lists, of a plugin's configuration, or of what commands print. */
export async function run(call: CommandCall): Promise<number> {
  const name = call.text('schema') ?? 'conflist';
  const schemas = { ...(await catalogOf(call).schemas()), ...(await call.plugins.answerSchemas?.()) };
  const schema = Object.hasOwn(schemas, name) ? schemas[name] : undefined;
  if (schema === undefined) {
    const names = Object.keys(schemas);
    const near = didYouMean(name, names) || `; there are ${names.join(', ')}`;
    throw new UsageError(`Cannot show the schema of "${name}": no such schema${near}`);
  }
  await printData(call, schema);
  return 0;
}
