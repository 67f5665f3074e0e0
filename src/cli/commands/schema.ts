// What does `catena schema` do?
import { type CommandCall, UsageError } from '../command.ts';
import { printData } from '../output/print.ts';

/** Prints the schema of lists, of a plugin's configuration, or of what commands print. */
export async function run(call: CommandCall): Promise<number> {
  const [name = 'conflist'] = call.positionals;
  const schemas = { ...(await call.plugins.schemas()), ...(await call.plugins.answerSchemas?.()) };
  const schema = Object.hasOwn(schemas, name) ? schemas[name] : undefined;
  if (schema === undefined) {
    const known = Object.keys(schemas).join(', ');
    throw new UsageError(`Cannot show the schema of "${name}": no such schema; there are ${known}`);
  }
  await printData(call, schema);
  return 0;
}
