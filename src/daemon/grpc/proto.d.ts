// What is a .proto file to an import with { type: 'text' }?
declare module '*.proto' {
  const text: string;
  export = text;
}
