// Which lines of a listing of machine code are of a line of the source.

/** As the server writes it: `// saxpy.cu:7, in half.h:9    y[i] = a;    ◂ 74%`. */
const SOURCE = /^\/\/ (.*?):(\d+)(?:.*? {4}(.*))?/;
/** What has gone since the last time has a `-`. */
const INSTRUCTION = /^[+ ] +\/\*/;

/** Their indices; none where the line was edited since. `line` counts from 1, `text` is that of the line now. */
export function rows(listing: readonly string[], path: string, line: number, text: string): number[] {
  let ours = false;
  return listing.flatMap((each, row) => {
    const source = SOURCE.exec(each);
    if (!source) return ours && INSTRUCTION.test(each) ? [row] : [];
    const [, file, number, quoted] = source;
    const same = quoted === undefined || `${quoted}    `.startsWith(`${text.trim()}    `);
    ours = Number(number) === line && `/${path}`.endsWith(`/${file}`) && same;
    return [];
  });
}
