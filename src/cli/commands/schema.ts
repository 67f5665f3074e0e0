// What does `catena schema` do?
import { type CommandCall, UsageError } from '../command.ts';

/** Prints the schema of conflists or of a plugin's configuration. */
export async function run(call: CommandCall): Promise<number> {
  const [name = 'conflist'] = call.positionals;
  const schemas = await call.plugins.schemas();
  const schema = Object.hasOwn(schemas, name) ? schemas[name] : undefined;
  if (schema === undefined) {
    const known = Object.keys(schemas).join(', ');
    throw new UsageError(`Cannot show the schema of "${name}": no such schema; there are ${known}`);
  }
  call.out(`${JSON.stringify(schema, null, 2)}\n`);
  return 0;
}
