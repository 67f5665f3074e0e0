// What is the type of a .proto file that is imported with { type: 'text' }?
declare module '*.proto' {
  const text: string;
  export = text;
}
