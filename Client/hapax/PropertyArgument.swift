import ArgumentParser
import HapaxModel

/// One `--property`: `name=text`, or `name:=json` for a value of another type.
struct PropertyArgument: Hashable {
    var name: String
    var value: PropertyValue

    /// To be called by `validate()`: the parser's own messages repeat the whole argument.
    ///
    /// - Throws: What is wrong, without the value, which may be a secret (I14).
    static func parse(_ argument: String) throws -> PropertyArgument {
        if let property = PropertyArgument(argument: argument) { return property }
        guard let (name, _, _) = split(argument) else { throw ValidationError("A property is name=text or name:=json.") }
        if name.isEmpty { throw ValidationError("A property has a name: name=text or name:=json.") }
        throw ValidationError(
            "The value of property '\(name)' is not JSON that an event may hold.")
    }

    init?(argument: String) {
        guard let (name, isJSON, text) = Self.split(argument) else { return nil }
        self.name = name
        guard isJSON else {
            value = .string(text)
            return
        }
        guard !name.isEmpty, let value = try? PropertyValue(json: text) else { return nil }
        self.value = value
    }

    /// By scalars: to `Character` the sign and an accent behind it are one.
    private static func split(_ argument: String) -> (name: String, isJSON: Bool, text: String)? {
        let scalars = argument.unicodeScalars
        guard let sign = scalars.firstIndex(of: "="), sign != scalars.startIndex else { return nil }
        let isJSON = scalars[scalars.index(before: sign)] == ":"
        return (String(scalars[..<sign].dropLast(isJSON ? 1 : 0)), isJSON, String(scalars[scalars.index(after: sign)...]))
    }
}
