import ArgumentParser
import Foundation

/// How `hapax import` reads a CSV file.
struct CSVOptions: ParsableArguments {
    @Flag(name: .customLong("csv"), help: "The file is CSV; its first line names the columns.")
    var isCSV = false

    @Option(help: ArgumentHelp("The column with the events' names.", valueName: "column"))
    var event: String?

    @Option(help: ArgumentHelp("The name of every event, or of those whose --event is empty.", valueName: "name"))
    var name: String?

    @Option(help: ArgumentHelp("The column with the times: ISO 8601, or Unix milliseconds.", valueName: "column"))
    var time: String?

    @Option(help: ArgumentHelp("The column with the users (distinct_id).", valueName: "column"))
    var user: String?

    @Option(help: ArgumentHelp("The columns that tell one event from another, with commas between. Default: all.", valueName: "columns"))
    var idFrom: String?

    @Flag(help: "Ids without the day, as of track --derive-id: for keys that a service has sent so, or whose times may be corrected.")
    var undated = false

    @Option(help: ArgumentHelp("The column with the events' own ids (UUIDs).", valueName: "column"))
    var id: String?

    @Option(help: ArgumentHelp("Columns that stay text, as of postcodes, with commas between.", valueName: "columns"))
    var text: String?

    @Option(
        help: ArgumentHelp(
            "A column that holds JSON, stored as it is; of one that is called properties the members become the event's own. May be repeated.",
            valueName: "column"))
    var jsonColumn: [String] = []

    @Option(
        help: ArgumentHelp(
            "What stands between cells: a character, or tab. Default: what the first line has most of.", valueName: "separator"))
    var separator: String?

    @Option(help: ArgumentHelp("The file's encoding: utf-8 or windows-1252. Default: utf-8.", valueName: "encoding"))
    var encoding: TextEncoding?

    @Flag(help: "Numbers have a decimal comma, and may have points between thousands: 1.234,50.")
    var decimalComma = false

    @Option(help: ArgumentHelp("How times are written, as dd.MM.yyyy HH:mm: \(DateFormat.help). Default: ISO 8601.", valueName: "format"))
    var dateFormat: String?

    @Option(help: ArgumentHelp("The zone of times that name none, such as Europe/Berlin.", valueName: "zone"))
    var zone: String?

    /// nil for a file of lines.
    var options: CSVMapping.Options? {
        guard isCSV, let time, let user else { return nil }
        func names(_ list: String?) -> [String] { list?.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) } ?? [] }
        return CSVMapping.Options(
            event: event, name: name, time: time, user: user, id: id, idFrom: names(idFrom), isDated: !undated, textColumns: names(text),
            jsonColumns: jsonColumn, zone: zone, dateFormat: dateFormat.flatMap { DateFormat($0) }, hasDecimalComma: decimalComma,
            separator: separator.flatMap(Self.byte), encoding: encoding ?? .utf8)
    }

    /// - Returns: nil for what cannot stand between cells.
    private static func byte(_ separator: String) -> UInt8? {
        if ["tab", "\\t"].contains(separator) { return 0x09 }
        guard separator.utf8.count == 1, let byte = separator.utf8.first, byte != 0x22, byte == 0x09 || byte >= 0x20 else { return nil }
        return byte
    }

    func validate() throws {
        guard isCSV else {
            let texts = [event, name, time, user, idFrom, id, text, zone, separator, dateFormat]
            if undated || decimalComma || encoding != nil || !jsonColumn.isEmpty || texts.contains(where: { $0 != nil }) {
                throw ValidationError(
                    "--event, --name, --time, --user, --id-from, --undated, --id, --text, --json-column, --separator, --encoding, --decimal-comma, --date-format and --zone are about tables: give --csv."
                )
            }
            return
        }
        guard time != nil, user != nil, event != nil || name != nil else {
            throw ValidationError("Which columns? Give --time, --user, and --event (or --name for all).")
        }
        if idFrom != nil || undated, id != nil { throw ValidationError("Give --id-from or --id, not both.") }
        for list in [idFrom, text] where list?.split(separator: ",").isEmpty == true {
            throw ValidationError("A list of columns is empty.")
        }
        if let separator, Self.byte(separator) == nil {
            throw ValidationError("A separator is one ASCII character, or tab; not a quotation mark.")
        }
        if let dateFormat, DateFormat(dateFormat) == nil {
            throw ValidationError("'\(dateFormat)' is no format of dates: it has a year, a month and a day, in \(DateFormat.help).")
        }
        if let zone, TimeZone(identifier: zone) == nil { throw ValidationError("This machine knows no time zone '\(zone)'.") }
    }
}
